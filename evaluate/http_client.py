"""Requests to an OpenAI-compatible server: the key from the environment, retries with backoff, clear errors.

A request is tried again after a lost connection, a timeout, a busy or broken server (408, 409, 425, 429, 5xx), at
distances that double and are spread by chance, or as long as the server's ``Retry-After`` asks. The key appears in no
message: not even where the server repeats it.
"""

import email.utils
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx

from sqale_grpo.env.chance import rng
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.evaluation import ServerConfig

BUSY = {408, 409, 425, 429, 500, 502, 503, 504}
FIRST_WAIT, LONGEST_WAIT, LONGEST_ASKED = 0.5, 60.0, 600.0  # seconds; the last is for Retry-After
SHOWN = 300  # characters of a server's own words in a message


class ServerError(RuntimeError):
    """A request that failed after all of its retries."""


class Refused(ServerError):
    """A request that the server understood and will not answer, now or later (4xx)."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"the server refuses the request ({status}): {words}")
        self.status, self.words = status, words


class Client:
    """Posts JSON to one server. Safe for several threads."""

    def __init__(self, section: ServerConfig, sleep: Callable[[float], None] = time.sleep) -> None:
        """``sleep`` waits between two tries, in seconds."""
        self.url = section.url.rstrip("/")
        self._section, self._sleep = section, sleep
        self._key = os.environ.get(section.key_variable, "").strip()
        if not (self._key.isascii() and self._key.isprintable()):
            raise ConfigError(
                f"the key in the environment variable {section.key_variable} holds a line break or another character "
                "that no request can carry; set it anew"
            )
        try:
            httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise ConfigError(f"server.url is no address ({error}); it looks like http://HOST:8000/v1") from error
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        limits = httpx.Limits(max_connections=section.concurrency)
        self._http = httpx.Client(headers=headers, timeout=section.timeout_seconds, limits=limits)

    def post(self, path: str, body: dict[str, Any], name: str) -> dict[str, Any]:
        """The answer to ``body``; ``name`` tells requests apart where chance spreads their retries.

        ServerError after the last try, Refused for a 4xx; ConfigError where the key is refused.
        """
        section, problem = self._section, ""
        for attempt in range(section.retries + 1):
            asked: float | None = None
            try:
                response = self._http.post(self.url + path, json=body)
            except httpx.TimeoutException:
                problem = f"no answer within {section.timeout_seconds:g} s"
            except httpx.TransportError as error:
                problem = f"the connection failed ({self._safe(str(error) or type(error).__name__)})"
            else:
                if response.is_success:
                    return self._read(response)
                if response.status_code not in BUSY:
                    raise self._refusal(response)
                problem = f"status {response.status_code}: {self._words(response)}"
                asked = retry_after(response.headers.get("Retry-After"))
            if attempt < section.retries:
                self._sleep(backoff(attempt, name) if asked is None else min(asked, LONGEST_ASKED))
        tries = section.retries + 1
        raise ServerError(
            f"{self.url} gave no answer in {tries} {'try' if tries == 1 else 'tries'}; the last: {problem}"
        )

    def models(self) -> list[str]:
        """Names of the server's models; empty where it does not list any. ConfigError where no server answers."""
        try:
            response = self._http.get(self.url + "/models", timeout=min(30.0, self._section.timeout_seconds))
        except httpx.ConnectError as error:
            raise ConfigError(
                f"no server answers at {self.url} ({self._safe(str(error))}); start it, or set server.url"
            ) from error
        except httpx.TransportError as error:
            raise ConfigError(f"{self.url} does not answer ({type(error).__name__}); see whether it is up") from error
        if response.status_code in (401, 403):
            raise self._refusal(response)
        try:
            return [str(model["id"]) for model in response.json()["data"]] if response.is_success else []
        except (ValueError, KeyError, TypeError):
            return []

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _read(self, response: httpx.Response) -> dict[str, Any]:
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if problem := unreadable(answer):
            raise Refused(response.status_code, f"{problem}: {self._words(response)}")
        return answer

    def _refusal(self, response: httpx.Response) -> Exception:
        if response.status_code in (401, 403):
            have = "the key in" if self._key else "a request without a key; set"
            return ConfigError(
                f"{self.url} refuses {have} the environment variable {self._section.key_variable} "
                f"(status {response.status_code})"
            )
        return Refused(response.status_code, self._words(response))

    def _words(self, response: httpx.Response) -> str:
        """What the server says, on one line and short."""
        try:
            found = response.json()
            found = found.get("error", found.get("detail", found)) if isinstance(found, dict) else found
            found = found.get("message", found) if isinstance(found, dict) else found
        except ValueError:
            found = response.text
        return self._safe(" ".join(str(found).split()))[:SHOWN]

    def _safe(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def unreadable(answer: Any) -> str:
    """What an answer lacks of the shape that the protocol gives it; "" where it can be read."""
    if not isinstance(answer, dict) or not isinstance(answer.get("choices"), list) or not answer["choices"]:
        return "an answer without choices"
    choice = answer["choices"][0]
    if not isinstance(choice, dict):
        return "a choice that is no object"
    message, usage, ids = choice.get("message") or {}, answer.get("usage") or {}, choice.get("token_ids")
    if not isinstance(message, dict) or not isinstance(usage, dict):
        return "a message or a usage that is no object"
    texts = [choice.get("text"), *(message.get(name) for name in ("content", "reasoning_content", "reasoning"))]
    if not all(text is None or isinstance(text, str) for text in texts):
        return "a text that is none"
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    if not all(count is None or isinstance(count, int) for count in counts):
        return "a usage that is no number"
    if not (ids is None or (isinstance(ids, list) and all(isinstance(token, int) and token >= 0 for token in ids))):
        return "token ids that are none"
    return ""


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
