"""A model behind an OpenAI-compatible server, played over completions with the raw prompt, or over chat.

Completions continue the episode's own tokens, so earlier ``<think>`` blocks stay as they were written; they need the
model's tokenizer here. Servers that take and return token ids (vLLM) get and give these; others get text. Chat sends
messages and leaves the template to the server, which may drop earlier thinking. The summary says which it was.

A server need not hold as many tokens as an episode has, nor take every parameter: what it refuses is asked for in
another way where the protocol allows it, and what is left out is said.
"""

import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sqale_grpo.evaluate.backend import Backend, Failure
from sqale_grpo.evaluate.chat_play import ContextFull, is_blank, play_chat
from sqale_grpo.evaluate.records import TokenCounts, token_counts
from sqale_grpo.rollout.chat import ChatFrame
from sqale_grpo.rollout.http import HttpClient, RequestRefused, ServerError
from sqale_grpo.rollout.requests import Completion, play_requests
from sqale_grpo.rollout.world import World
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.evaluation import EvaluationConfig, ServerConfig

COMPLETIONS, CHAT = "/completions", "/chat/completions"
NO_ENDPOINT = {404, 405, 501}
TOKEN_IDS, TEXT, MESSAGES = "completions with token ids", "completions with text", "chat"
PROBE_TOKENS = 1
SMALLEST_TURN = 64  # tokens; a server that has no room for so many ends the episode
PROBE = [{"role": "system", "content": "You answer."}, {"role": "user", "content": "Hello"}]
# How servers say that their context is shorter than what is asked for: vLLM, SGLang, llama.cpp, OpenAI, Anthropic.
_CONTEXT = re.compile(
    r"context (length|window|size)|maximum (model|sequence) length|prompt is too long|max_model_len", re.IGNORECASE
)
_ONE_OF_TWO = re.compile(r"\b(both|only one|one of)\b", re.IGNORECASE)


class ServerBackend:
    """Plays every episode in a thread of its own, ``server.concurrency`` at once."""

    def __init__(self, config: EvaluationConfig, client: HttpClient, frame: ChatFrame | None) -> None:
        """``frame``: of the model's tokenizer, None where it is not known. Raises ConfigError like ``open_server``."""
        self.config, self.client, self.frame = config, client, frame
        self.sampling = config.sampling.sampling()
        self.not_sent: set[str] = set()  # parameters of no importance to the protocol that this server refuses
        self.length = "max_tokens"
        self._lock = threading.Lock()
        self._answers = self._unspoken = self._full = 0
        listed = client.models()
        self.api = self._choose([str(model["id"]) for model in listed])
        self.facts: dict[str, Any] = {
            "parameters": config.parameters,
            "api": self.api,
            "not_sent": sorted(self.not_sent),
        }
        if (held := self._held_tokens(listed)) is not None:
            self.facts["context_tokens"] = held

    def play(self, episodes: Sequence[World], pool: ThreadPoolExecutor) -> list[TokenCounts | Failure]:
        """Every episode to its end; one whose request failed after all retries is a Failure."""
        threads = ThreadPoolExecutor(self.config.server.concurrency, thread_name_prefix="server")
        try:
            return list(threads.map(lambda each: self._play(each, pool), episodes))
        finally:
            threads.shutdown(cancel_futures=True)

    def remarks(self) -> list[str]:
        """What was left out, and where the server was not what an episode needs."""
        found, budget = [], self.sampling.max_episode_tokens
        if self.not_sent:
            found.append(
                f"the server does not take {', '.join(sorted(self.not_sent))}: its own values stand, not the protocol's"
            )
        if held := self.facts.get("context_tokens"):
            found.append(f"the server holds {held:,} tokens, an episode has {budget:,} (sampling.max_episode_tokens)")
        if self._full:
            found.append(f"{self._full} episodes ended as token_budget because the server's context was full")
        if self._unspoken:
            found.append(
                f"{self._unspoken} of {self._answers} answers came as thinking alone and were read as text: the server "
                "takes the answer for thinking; start it without a reasoning parser, or with the model's own"
            )
        return found

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def ask(self, path: str, body: dict[str, Any], max_tokens: int, name: str) -> dict[str, Any]:
        """One request with the sampling parameters that this server takes.

        One whose context is shorter than an episode is asked for half of the tokens until they fit; ContextFull where
        SMALLEST_TURN do not.
        """
        while True:
            try:
                answer = self.client.post(path, {**body, **self._parameters(path), self.length: max_tokens}, name)
            except RequestRefused as refusal:
                if not _CONTEXT.search(refusal.words):
                    raise
                if max_tokens <= SMALLEST_TURN:
                    with self._lock:
                        self._full += 1
                    raise ContextFull(refusal.status, refusal.words) from refusal
                max_tokens = max(SMALLEST_TURN, max_tokens // 2)
                continue
            if problem := unreadable(answer):
                raise RequestRefused(200, f"{problem}: {self.client.shown(answer)}")
            return answer

    def _play(self, each: World, pool: ThreadPoolExecutor) -> TokenCounts | Failure:
        try:
            if self.api == MESSAGES:
                return play_chat(each, self.sampling, self._ask_chat)
            assert self.frame is not None
            engine = TurnEngine(self, self.frame)
            (tokens,) = play_requests(engine, self.frame, [each.episode], [each.key], self.sampling, pool)
            return token_counts(len(tokens.prompt_ids), tokens.env_mask)
        except ServerError as error:
            return Failure(str(error))

    def _ask_chat(self, messages: list[dict[str, str]], max_tokens: int, name: str) -> dict[str, Any]:
        answer = self.ask(CHAT, {"messages": messages}, max_tokens, name)
        with self._lock:
            self._answers += 1
            choice = answer["choices"][0]
            self._unspoken += choice.get("finish_reason") != "length" and is_blank(choice.get("message") or {})
        return answer

    def _held_tokens(self, listed: list[dict[str, Any]]) -> int | None:
        """Tokens of the server's context where it lists them (vLLM) and an episode's budget is larger; else None."""
        held = [model.get("max_model_len") for model in listed if model["id"] == self.config.model]
        short = [each for each in held if isinstance(each, int) and 0 < each < self.sampling.max_episode_tokens]
        return short[0] if short else None

    def _choose(self, listed: list[str]) -> str:
        """The first way to ask that works, or the one that ``server.api`` names. ConfigError where none does."""
        wanted = self.config.server.api
        said = ""
        if wanted != "chat" and self.frame is not None:
            ids = self.frame.prompt_ids(PROBE)
            for api, prompt in ((TOKEN_IDS, ids), (TEXT, prompt_text(self.frame, ids))):
                answer = self._probe(COMPLETIONS, {"prompt": prompt}, listed)
                if isinstance(answer, RequestRefused):
                    said = answer.what
                elif "token_ids" not in answer["choices"][0] and self._loses_thinking(self.frame):
                    said = "it returns text without special tokens, and </think> is one in this tokenizer"
                else:
                    return api
        if wanted == "completions":
            reason = said or (
                "the raw prompt needs the model's tokenizer; set server.tokenizer to its folder or Hub name"
            )
            raise ConfigError(f"server.api=completions cannot be used at {self.client.url}: {reason}")
        answer = self._probe(CHAT, {"messages": PROBE}, listed)
        if not isinstance(answer, RequestRefused):
            return MESSAGES
        if re.search(r"system", answer.words, re.IGNORECASE) and answer.status not in NO_ENDPOINT:
            raise ConfigError(
                f"{self.client.url} takes no system message, with which every episode begins ({answer.words}); serve "
                "the model with a chat template that takes one"
            )
        path = "" if re.search(r"/v\d", self.client.url) else "; such addresses end in /v1: see server.url"
        raise ConfigError(
            f"{self.client.url} answers neither completions nor chat for model={self.config.model}: {answer.what}{path}"
        )

    def _loses_thinking(self, frame: ChatFrame) -> bool:
        """Whether text from this server lacks the end of the thinking, which the protocol needs."""
        special = frame.tokenizer.convert_ids_to_tokens(frame.tokenizer.all_special_ids)
        return "skip_special_tokens" in self.not_sent and "</think>" in special

    def _probe(self, path: str, body: dict[str, Any], listed: list[str]) -> dict[str, Any] | RequestRefused:
        """A request of one token; parameters that the server names in a refusal are left out from then on."""
        while True:
            try:
                return self.ask(path, body, PROBE_TOKENS, "probe")
            except RequestRefused as refusal:
                if refusal.status not in NO_ENDPOINT and self._leave_out(path, refusal.words):
                    continue
                if re.search(r"model", refusal.words, re.IGNORECASE) and refusal.status == 404:
                    known = ", ".join(listed[:10]) or "none that it lists"
                    raise ConfigError(
                        f"{self.client.url} has no model {self.config.model!r}; it has {known}: set model=... to one"
                    ) from refusal
                return refusal
            except ServerError as error:
                raise ConfigError(str(error)) from error

    def _leave_out(self, path: str, words: str) -> bool:
        """Take note of the parameters that a refusal names. Returns whether there is anything to change."""
        if self.length == "max_tokens" and "max_completion_tokens" in words:
            self.length = "max_completion_tokens"
            return True
        named = {name for name in self._parameters(path) if re.search(rf"\b{name}\b", words)} - {"model"}
        if {"temperature", "top_p"} <= named and _ONE_OF_TWO.search(words):
            named -= {"temperature"}  # the one that the protocol leans on
        self.not_sent |= named
        return bool(named)

    def _parameters(self, path: str) -> dict[str, Any]:
        sampling, config = self.sampling, self.config
        given: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        if sampling.top_k:
            given["top_k"] = sampling.top_k
        if path == CHAT:
            given["chat_template_kwargs"] = {"enable_thinking": config.enable_thinking}
        else:
            assert self.frame is not None
            given["return_token_ids"] = True
            given["skip_special_tokens"] = given["add_special_tokens"] = False
            given["stop_token_ids"] = sorted(self.frame.stop_ids)
            if "stop_token_ids" in self.not_sent:
                given["stop"] = sorted(self.frame.tokenizer.convert_ids_to_tokens(sorted(self.frame.stop_ids)))
        return {"model": config.model, **{name: value for name, value in given.items() if name not in self.not_sent}}


def unreadable(answer: dict[str, Any]) -> str:
    """What an answer lacks of the shape that the protocol gives it; "" where it can be read."""
    if not isinstance(answer.get("choices"), list) or not answer["choices"]:
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


class TurnEngine:
    """An Engine of one episode: each turn is one request, answered when it is submitted."""

    def __init__(self, backend: ServerBackend, frame: ChatFrame) -> None:
        self._backend, self._frame = backend, frame
        self._written: list[Completion] = []

    def submit(self, request: int, token_ids: list[int], max_tokens: int) -> None:
        """Ask for the turn. Raises ServerError."""
        backend = self._backend
        prompt = token_ids if backend.api == TOKEN_IDS else prompt_text(self._frame, token_ids)
        name = f"{request} {len(token_ids)}"
        try:
            answer = backend.ask(COMPLETIONS, {"prompt": prompt}, max_tokens, name)
        except ContextFull:
            self._written.append(Completion(request, [], [], full=True))
            return
        ids = written_ids(answer["choices"][0], self._frame)[:max_tokens]
        self._written.append(Completion(request, ids, [0.0] * len(ids)))

    def collect(self) -> list[Completion]:
        """The turns that were asked for."""
        written, self._written = self._written, []
        return written


def prompt_text(frame: ChatFrame, token_ids: list[int]) -> str:
    """The raw prompt as a server reads it that takes text alone."""
    return frame.tokenizer.decode(token_ids, skip_special_tokens=False)


def written_ids(choice: dict[str, Any], frame: ChatFrame) -> list[int]:
    """The tokens of one turn, its stop token included where it has one; read off the text where no ids come."""
    ids = choice.get("token_ids")
    if ids is None:
        text = choice.get("text") or ""
        for stop in frame.tokenizer.convert_ids_to_tokens(sorted(frame.stop_ids)):
            text = text.removesuffix(stop)
        ids = frame.written_tokens(text)
    ends = [at for at, token in enumerate(ids) if token in frame.stop_ids]
    if ends:
        return ids[: ends[0] + 1]
    return [*ids, frame.stop_id] if choice.get("finish_reason") == "stop" else list(ids)


def client_of(section: ServerConfig, sleep: Callable[[float], None] = time.sleep) -> HttpClient:
    """The client of the section's server; ``sleep`` waits between two tries, in seconds."""
    return HttpClient(
        section.url, section.timeout_seconds, section.retries, section.concurrency, section.key_variable, sleep
    )


def check_server(config: EvaluationConfig) -> None:
    """ConfigError where no server answers, it refuses the key, or the tokenizer for it has no fitting template."""
    client = client_of(config.server)
    try:
        client.models()
        _frame(config)
    finally:
        client.close()


def open_server(config: EvaluationConfig, make_client: Callable[[ServerConfig], HttpClient] | None = None) -> Backend:
    """The server of ``config``, asked how it wants to be asked.

    ConfigError where no server answers, the key is refused, or it does not have the model.
    """
    client = (make_client or client_of)(config.server)
    try:
        return ServerBackend(config, client, _frame(config))
    except BaseException:
        client.close()
        raise


def _frame(config: EvaluationConfig) -> ChatFrame | None:
    """The chat frame of the model's tokenizer, where one is known and wanted."""
    place = config.server.tokenizer or (config.model if Path(config.model).is_dir() else None)
    if place is None or config.server.api == "chat":
        return None
    from sqale_grpo.evaluate.local import frame_of

    return frame_of(config, place)
