"""Requests to a model's server: one client, one rule of what is tried again, one error that says what to do.

A request is tried again after a lost connection, a timeout, and the answer of a busy or broken server (408, 409, 425,
429, 5xx), at distances that double and are spread by chance, or as long as the server's ``Retry-After`` asks; but not
once it has waited PATIENCE_SECONDS for answers: a server that hangs would hold a run for hours. The key appears in no
message, not even where the server repeats it. Imports no torch.
"""

import email.utils
import ipaddress
import json
import os
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import httpx

from sqale_grpo.env.chance import rng
from sqale_grpo.env.errors import UserError, first_line
from sqale_grpo.settings.check import ConfigError

PASSING = {408, 409, 425, 429}  # refusals that pass, beside every 5xx but "not implemented"
NOT_IMPLEMENTED = 501
RETRIES = 6
PATIENCE_SECONDS = 1_800.0
LISTING_SECONDS = 30.0
FIRST_WAIT, LONGEST_WAIT, LONGEST_ASKED = 0.5, 60.0, 600.0  # seconds; the last is for Retry-After
SHOWN = 300  # characters of a server's own words in a message
START_AGAIN = "see whether the server is up, then start the same command again (a training run with --resume)"


class ServerError(UserError):
    """A server that cannot be reached or answers what is of no use. ``what``: the message without what to do."""

    exit_status = 1

    def __init__(self, what: str, fix: str = START_AGAIN) -> None:
        super().__init__(f"{what}; {fix}")
        self.what = what


class RequestRefused(ServerError):
    """A request that the server understood and will not answer, now or later (4xx, or an answer of another form)."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(
            f"the server refuses the request ({status}): {words}", "change what it names, or the server's settings"
        )
        self.status, self.words = status, words


class HttpClient:
    """Asks one server for JSON. Safe for several threads."""

    def __init__(
        self,
        url: str,
        seconds: float,
        retries: int = RETRIES,
        connections: int = 1,
        key_variable: str = "",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``seconds``: to wait for an answer; ``key_variable``: the environment variable that holds the key, if one is
        to be sent; ``sleep`` waits between two tries. ConfigError for an address or a key that cannot be used.
        """
        self.url = url.rstrip("/")
        self._seconds, self._retries, self._sleep, self._key_variable = seconds, retries, sleep, key_variable
        self._key = os.environ.get(key_variable, "").strip() if key_variable else ""
        if not (self._key.isascii() and self._key.isprintable()):
            raise ConfigError(
                f"the key in the environment variable {key_variable} holds a line break or another character "
                "that no request can carry; set it anew"
            )
        try:
            host = httpx.URL(self.url).host
        except httpx.InvalidURL as error:
            raise ConfigError(f"server.url is no address ({error}); it looks like http://HOST:8000/v1") from error
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        own = is_loopback(host)  # no proxy leads back to this machine
        self._proxies = {} if own or urllib.request.proxy_bypass(host) else urllib.request.getproxies()
        try:
            self._http = httpx.Client(
                headers=headers,
                timeout=seconds,
                limits=httpx.Limits(max_connections=connections),
                trust_env=not own,
            )
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"the proxy of this environment cannot be used ({self._through()}: {first_line(error)}); unset it, or "
                f"set NO_PROXY={host}"
            ) from error

    def post(self, path: str, body: dict[str, Any], name: str) -> dict[str, Any]:
        """The answer to ``body``; ``name`` tells requests apart where chance spreads their retries.

        ServerError after the last try, RequestRefused for a 4xx or an answer that is no JSON object; ConfigError where
        the key is refused.
        """
        return self._ask("POST", path, body, name)

    def get(self, path: str) -> dict[str, Any]:
        """The answer to a GET; errors as of ``post``."""
        return self._ask("GET", path, None, path)

    def models(self) -> list[dict[str, Any]]:
        """What the server lists of its models, each with its ``id``; empty where it does not list any.

        ConfigError where no server answers.
        """
        try:
            response = self._http.get(self.url + "/models", timeout=min(LISTING_SECONDS, self._seconds))
        except httpx.ConnectError as error:
            if through := self._through():
                raise ConfigError(
                    f"no server answers at {self.url} through the proxy {through} ({self._safe(str(error))}); set "
                    "NO_PROXY where the server is to be asked directly"
                ) from error
            raise ConfigError(
                f"no server answers at {self.url} ({self._safe(str(error))}); start it, or set server.url"
            ) from error
        except httpx.TransportError as error:
            raise ConfigError(f"{self.url} does not answer ({type(error).__name__}); see whether it is up") from error
        if response.status_code in (401, 403):
            raise self._refusal(response)
        try:
            return (
                [{**model, "id": str(model["id"])} for model in response.json()["data"]] if response.is_success else []
            )
        except (ValueError, LookupError, TypeError):
            return []

    def shown(self, value: Any) -> str:
        """What the server says, on one line, short and without the key."""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return self._safe(" ".join(text.split()))[:SHOWN]

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _ask(self, method: str, path: str, body: dict[str, Any] | None, name: str) -> dict[str, Any]:
        waited, tries = 0.0, 0
        while True:
            started = time.monotonic()
            response, problem = self._try(method, path, body)
            if response is not None and not may_pass(status_of(response)):
                return self._read(response)
            waited += time.monotonic() - started
            tries += 1
            if tries > self._retries or waited >= PATIENCE_SECONDS:
                said = f"{tries} {'try' if tries == 1 else 'tries'}; the last: {problem}"
                raise ServerError(f"{self.url}{path} gave no answer in {said}")
            asked = retry_after(response.headers.get("Retry-After")) if response is not None else None
            self._sleep(backoff(tries - 1, name) if asked is None else min(asked, LONGEST_ASKED))

    def _try(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[httpx.Response | None, str]:
        """The response, if there was one, and what is wrong with it if it is not to be read."""
        try:
            response = self._http.request(method, self.url + path, json=body)
        except httpx.TimeoutException:
            return None, f"no answer within {self._seconds:g} s"
        except (httpx.TransportError, httpx.DecodingError) as error:
            return None, f"the connection failed ({self._safe(str(error) or type(error).__name__)})"
        return response, f"status {status_of(response)}: {self._words(response)}"

    def _read(self, response: httpx.Response) -> dict[str, Any]:
        if not response.is_success:
            raise self._refusal(response)
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise RequestRefused(response.status_code, f"an answer that is no JSON object: {self._words(response)}")
        return answer

    def _refusal(self, response: httpx.Response) -> UserError:
        if response.status_code in (401, 403) and self._key_variable:
            have = "the key in" if self._key else "a request without a key; set"
            return ConfigError(
                f"{self.url} refuses {have} the environment variable {self._key_variable} "
                f"(status {response.status_code})"
            )
        return RequestRefused(response.status_code, self._words(response))

    def _words(self, response: httpx.Response) -> str:
        try:
            found = response.json()
            found = found.get("error", found.get("detail", found)) if isinstance(found, dict) else found
            found = found.get("message", found) if isinstance(found, dict) else found
        except ValueError:
            found = response.text
        return self.shown(found)

    def _through(self) -> str:
        """The environment's proxies for this server, without users and keys; "" where none is in the way."""
        schemes = (self.url.partition(":")[0], "all")
        parts = [urlsplit(self._proxies[name]) for name in schemes if self._proxies.get(name)]
        return ", ".join(f"{part.scheme}://{part.netloc.rpartition('@')[2]}" for part in parts)

    def _safe(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def may_pass(status: int) -> bool:
    """Whether the same request may succeed later."""
    return status in PASSING or (status >= 500 and status != NOT_IMPLEMENTED)


def status_of(response: httpx.Response) -> int:
    """The status of a response; gateways answer 200 with their provider's error, and its status, inside."""
    if response.is_success:
        try:
            code = response.json()["error"]["code"]
        except (ValueError, LookupError, TypeError):
            code = None
        if isinstance(code, int) and may_pass(code):
            return code
    return response.status_code


def backoff(attempt: int, name: str) -> float:
    """Seconds before the try after ``attempt`` (from 0): doubling, and half to one and a half of it by chance."""
    return min(LONGEST_WAIT, FIRST_WAIT * 2**attempt) * (0.5 + rng("retry", name, attempt).random())


def retry_after(value: str | None) -> float | None:
    """Seconds that a ``Retry-After`` header asks for: a number, or a date; None where it asks for nothing."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:  # "-0000": UTC, of a place that is not known
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
