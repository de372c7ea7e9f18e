"""Requests to a model's server: one client, one rule of what is tried again, one error that says what to do.

A request is tried again after a lost connection, a timeout, and the answer of a busy or broken server (408, 409, 425,
429, 5xx), at distances that double and are spread by chance, or as long as the server's ``Retry-After`` asks; but not
once it has waited PATIENCE_SECONDS for answers: a server that hangs would hold a run for hours. The key appears in no
message, not even where the server repeats it. Standard library only: the agent's single file asks servers with it.
"""

import email.utils
import http.client
import ipaddress
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from sqale_grpo.env.chance import rng
from sqale_grpo.env.errors import ConfigError, UserError

PASSING = {408, 409, 425, 429}  # refusals that pass, beside every 5xx but "not implemented"
NOT_IMPLEMENTED = 501
REFUSED_KEY = (401, 403)
RETRIES = 6
PATIENCE_SECONDS = 1_800.0
LISTING_SECONDS = 30.0
FIRST_WAIT, LONGEST_WAIT, LONGEST_ASKED = 0.5, 60.0, 600.0  # seconds; the last is for Retry-After
SHOWN = 300  # characters of a server's own words in a message
START_AGAIN = "see whether the server is up, then start the same command again (a training run with --resume)"
AGENT = "sqale-grpo"  # gateways refuse the name that Python's library gives itself


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


@dataclass(frozen=True)
class Response:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str | None:
        """A header by its name in any case."""
        return next((value for known, value in self.headers.items() if known.lower() == name.lower()), None)

    @property
    def is_success(self) -> bool:
        """2xx."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON; ValueError where it is none."""
        return json.loads(self.body)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirection is an answer: what a request says, and its key, goes to the address that was named alone."""

    def redirect_request(self, *_: Any) -> None:
        """None: not followed."""


class HttpClient:
    """Asks one server for JSON, each request over a connection of its own. Safe for several threads."""

    def __init__(
        self,
        url: str,
        seconds: float,
        retries: int = RETRIES,
        key_variable: str = "",
        sleep: Callable[[float], None] = time.sleep,
        setting: str = "server.url",
        again: str = START_AGAIN,
    ) -> None:
        """``seconds``: to wait for an answer; ``key_variable``: the environment variable that holds the key, if one is
        to be sent; ``sleep`` waits between two tries; ``setting``: what the address was given by, ``again``: what to
        do once the server is up, both for messages. ConfigError for an address or a key that cannot be used.
        """
        self.url = url.rstrip("/")
        self._seconds, self._retries, self._sleep, self._key_variable = seconds, retries, sleep, key_variable
        self._setting, self._again = setting, again
        self._key = os.environ.get(key_variable, "").strip() if key_variable else ""
        if not (self._key.isascii() and self._key.isprintable()):
            raise ConfigError(
                f"the key in the environment variable {key_variable} holds a line break or another character "
                "that no request can carry; set it anew"
            )
        host = self._host()
        own = is_loopback(host)  # no proxy leads back to this machine
        self._proxy = "" if own or urllib.request.proxy_bypass(host) else self._proxy_of(urllib.request.getproxies())
        if self._proxy and urlsplit(self._proxy).scheme not in ("", "http", "https"):
            raise ConfigError(
                f"the proxy of this environment cannot be used ({self._through()}: only HTTP proxies can be asked "
                f"through); unset it, or set NO_PROXY={host}"
            )
        scheme = self.url.partition(":")[0].lower()
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({scheme: self._proxy} if self._proxy else {}),
            urllib.request.HTTPSHandler(context=ssl.create_default_context()),
            NoRedirect,
        )
        self._headers = {"User-Agent": AGENT, "Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            self._headers["Authorization"] = f"Bearer {self._key}"

    def post(self, path: str, body: dict[str, Any], name: str) -> dict[str, Any]:
        """The answer to ``body``; ``name`` tells requests apart where chance spreads their retries.

        ServerError after the last try, RequestRefused for a 4xx or an answer that is no JSON object; ConfigError where
        the key is refused.
        """
        return self._ask(path, body, name)

    def get(self, path: str) -> dict[str, Any]:
        """The answer to a GET; errors as of ``post``."""
        return self._ask(path, None, path)

    def models(self) -> list[dict[str, Any]]:
        """What the server lists of its models, each with its ``id``; empty where it does not list any.

        ConfigError where no server answers.
        """
        try:
            response = self._request("/models", None, min(LISTING_SECONDS, self._seconds))
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise ConfigError(f"{self.url} does not answer (TimeoutError); see whether it is up") from error
            reason = self._safe(str(error.reason))
            if through := self._through():
                raise ConfigError(
                    f"no server answers at {self.url} through the proxy {through} ({reason}); set "
                    "NO_PROXY where the server is to be asked directly"
                ) from error
            raise ConfigError(
                f"no server answers at {self.url} ({reason}); start it, or set {self._setting}"
            ) from error
        except (http.client.HTTPException, OSError) as error:
            raise ConfigError(f"{self.url} does not answer ({type(error).__name__}); see whether it is up") from error
        if response.status in REFUSED_KEY:
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

    def _host(self) -> str:
        try:
            parts = urlsplit(self.url)
            _, host = parts.port, parts.hostname
        except ValueError as error:
            raise ConfigError(f"{self._setting} is no address ({error}); it looks like http://HOST:8000/v1") from error
        if parts.scheme not in ("http", "https") or not host or not self.url.isascii() or not self.url.isprintable():
            raise ConfigError(f"{self._setting} is no http(s) address; it looks like http://HOST:8000/v1")
        if parts.username is not None or parts.query:
            raise ConfigError(
                f"{self._setting} holds a user or a key; it must be an address without one, and the key goes into the "
                f"environment variable {self._key_variable or 'OPENAI_API_KEY'}"
            )
        return host

    def _ask(self, path: str, body: dict[str, Any] | None, name: str) -> dict[str, Any]:
        waited, tries = 0.0, 0
        while True:
            started = time.monotonic()
            response, problem = self._try(path, body)
            if response is not None and not may_pass(status_of(response)):
                return self._read(response)
            waited += time.monotonic() - started
            tries += 1
            if tries > self._retries or waited >= PATIENCE_SECONDS:
                said = f"{tries} {'try' if tries == 1 else 'tries'}; the last: {problem}"
                raise ServerError(f"{self.url}{path} gave no answer in {said}", self._again)
            asked = retry_after(response.header("Retry-After")) if response is not None else None
            self._sleep(backoff(tries - 1, name) if asked is None else min(asked, LONGEST_ASKED))

    def _try(self, path: str, body: dict[str, Any] | None) -> tuple[Response | None, str]:
        """The response, if there was one, and what is wrong with it if it is not to be read."""
        try:
            response = self._request(path, body, self._seconds)
        except (http.client.HTTPException, OSError) as error:  # URLError is an OSError
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                return None, f"no answer within {self._seconds:g} s"
            return None, f"the connection failed ({self._safe(str(reason) or type(reason).__name__)})"
        return response, f"status {status_of(response)}: {self._words(response)}"

    def _request(self, path: str, body: dict[str, Any] | None, seconds: float) -> Response:
        """One request. Raises OSError or HTTPException where there is no whole answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self._headers)
        try:
            with self._opener.open(request, timeout=seconds) as answer:
                return Response(answer.status, dict(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Response(error.code, dict(error.headers), error.read())

    def _read(self, response: Response) -> dict[str, Any]:
        if not response.is_success:
            raise self._refusal(response)
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise RequestRefused(response.status, f"an answer that is no JSON object: {self._words(response)}")
        return answer

    def _refusal(self, response: Response) -> UserError:
        if response.status in REFUSED_KEY and self._key_variable:
            have = "the key in" if self._key else "a request without a key; set"
            return ConfigError(
                f"{self.url} refuses {have} the environment variable {self._key_variable} (status {response.status})"
            )
        return RequestRefused(response.status, self._words(response))

    def _words(self, response: Response) -> str:
        try:
            found = response.json()
            found = found.get("error", found.get("detail", found)) if isinstance(found, dict) else found
            found = found.get("message", found) if isinstance(found, dict) else found
        except ValueError:
            found = response.text
        return self.shown(found)

    def _proxy_of(self, proxies: Mapping[str, str]) -> str:
        return proxies.get(self.url.partition(":")[0].lower()) or proxies.get("all") or ""

    def _through(self) -> str:
        """The environment's proxy for this server, without user and key; "" where none is in the way."""
        part = urlsplit(self._proxy)
        return f"{part.scheme}://{part.netloc.rpartition('@')[2]}" if self._proxy else ""

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


def status_of(response: Response) -> int:
    """The status of a response; gateways answer 200 with their provider's error, and its status, inside."""
    if response.is_success:
        try:
            code = response.json()["error"]["code"]
        except (ValueError, LookupError, TypeError):
            code = None
        if isinstance(code, int) and may_pass(code):
            return code
    return response.status


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
