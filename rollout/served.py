"""A model behind an OpenAI-compatible server, played over completions with the raw prompt, or over chat.

Completions continue the episode's own text, so earlier ``<think>`` blocks stay as they were written. With the model's
tokenizer here it is the episode's tokens that are continued; servers that take and return token ids (vLLM) get and give
these, others text. With its frame as text (``TextFrame``, what an export knows of its model) text is all there is.
Chat sends messages and leaves the template to the server, which may drop earlier thinking. ``Server.api`` says which.

A server need not hold as many tokens as an episode has, nor take every parameter: what it refuses is asked for in
another way where the protocol allows it, and what is left out is said. Log-probabilities are not asked for.
"""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from sqale_grpo.env.episode import Episode
from sqale_grpo.env.errors import ConfigError
from sqale_grpo.rollout.chat import ChatFrame
from sqale_grpo.rollout.http import HttpClient, RequestRefused, ServerError
from sqale_grpo.rollout.requests import play_requests
from sqale_grpo.rollout.served_play import (
    ChatConversation,
    ContextFull,
    Conversation,
    RawConversation,
    Usage,
    is_blank,
    play_text,
    unreadable,
)
from sqale_grpo.rollout.served_tokens import TurnEngine
from sqale_grpo.rollout.text_frame import END_OF_THINKING, TextFrame
from sqale_grpo.rollout.tokens import EpisodeTokens
from sqale_grpo.settings.sampling import Sampling

COMPLETIONS, CHAT = "/completions", "/chat/completions"
NO_ENDPOINT = {404, 405, 501}
TOKEN_IDS, TEXT, MESSAGES = "completions with token ids", "completions with text", "chat"
PROBE_TOKENS = 1
SMALLEST_TURN = 64  # tokens; a server that has no room for so many ends the episode
PROBE = [{"role": "system", "content": "You answer."}, {"role": "user", "content": "Hello"}]
# Raw, one letter is a token, with one or two that begin every text; in a template of the server's it is many more.
LETTER, LETTER_TOKENS = "a", 4
# How servers say that their context is shorter than what is asked for: vLLM, SGLang, llama.cpp, OpenAI, Anthropic.
_CONTEXT = re.compile(
    r"context (length|window|size)|maximum (model|sequence) length|prompt is too long|max_model_len", re.IGNORECASE
)
_ONE_OF_TWO = re.compile(r"\b(both|only one|one of)\b", re.IGNORECASE)


@dataclass(frozen=True)
class SettingNames:
    """What a program calls that which a message says to set."""

    url: str = "server.url"
    api: str = "server.api="
    model: str = "model="
    tokenizer: str = "server.tokenizer"
    budget: str = "sampling.max_episode_tokens"


class Server:
    """One model of a server, asked how it wants to be asked. Safe for several threads."""

    def __init__(
        self,
        client: HttpClient,
        model: str,
        sampling: Sampling,
        frame: ChatFrame | TextFrame | None,
        api: str = "auto",
        enable_thinking: bool = True,
        names: SettingNames = SettingNames(),
    ) -> None:
        """``frame``: of the model's tokenizer, or its text alone; None where neither is known. ``api``: auto,
        completions or chat.

        ConfigError where no server answers, the key is refused, or the model cannot be asked in such a way.
        """
        self.client, self.model, self.sampling, self.frame, self.names = client, model, sampling, frame, names
        self.enable_thinking = enable_thinking
        self.not_sent: set[str] = set()  # parameters of no importance to the protocol that this server refuses
        self.length = "max_tokens"
        self.full = 0  # episodes that ended because the server's context was full
        self._lock = threading.Lock()
        self._answers = self._unspoken = self._shrunk = 0
        listed = client.models()
        self.api = self._choose(api, [str(each["id"]) for each in listed])
        self.context_tokens = self._held_tokens(listed)

    def play(self, episode: Episode, key: int, pool: ThreadPoolExecutor) -> EpisodeTokens | Usage:
        """Play one episode to its end: its tokens where they are known here, else the server's counts.

        Raises ServerError for a request that failed after all retries.
        """
        if self.api != MESSAGES and isinstance(self.frame, ChatFrame):
            engine = TurnEngine(self._ask_raw, self.frame, self.api == TEXT)
            (tokens,) = play_requests(engine, self.frame, [episode], [key], self.sampling, pool)
            return tokens
        conversation: Conversation = ChatConversation(episode.prompt())
        ask = self._ask_chat
        if self.api != MESSAGES:
            assert isinstance(self.frame, TextFrame)
            conversation, ask = RawConversation(episode.prompt(), self.frame), self._ask_raw
        usage = play_text(episode, key, conversation, self.sampling, ask)
        with self._lock:
            self._shrunk += usage.shrunk
        return usage

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
                        self.full += 1
                    raise ContextFull(refusal.status, refusal.words) from refusal
                max_tokens = max(SMALLEST_TURN, max_tokens // 2)
                continue
            if problem := unreadable(answer):
                raise RequestRefused(200, f"{problem}: {self.client.shown(answer)}")
            return answer

    def remarks(self) -> list[str]:
        """What was left out, and where the server was not what an episode needs."""
        found, budget = [], self.sampling.max_episode_tokens
        if self.not_sent:
            found.append(
                f"the server does not take {', '.join(sorted(self.not_sent))}: its own values stand, not the protocol's"
            )
        if held := self.context_tokens:
            found.append(f"the server holds {held:,} tokens, an episode has {budget:,} ({self.names.budget})")
        if self.full:
            found.append(f"{self.full} episodes ended as token_budget because the server's context was full")
        if self._shrunk:
            found.append(
                f"in {self._shrunk} episodes a turn was read with fewer tokens than the one before it: the server cuts "
                "what its context does not hold; start it with a longer one"
            )
        if self._unspoken:
            found.append(
                f"{self._unspoken} of {self._answers} answers came as thinking alone and were read as text: the server "
                "takes the answer for thinking; start it without a reasoning parser, or with the model's own"
            )
        return found

    def _ask_raw(self, body: dict[str, Any], max_tokens: int, name: str) -> dict[str, Any]:
        return self.ask(COMPLETIONS, body, max_tokens, name)

    def _ask_chat(self, body: dict[str, Any], max_tokens: int, name: str) -> dict[str, Any]:
        answer = self.ask(CHAT, body, max_tokens, name)
        with self._lock:
            self._answers += 1
            choice = answer["choices"][0]
            self._unspoken += choice.get("finish_reason") != "length" and is_blank(choice.get("message") or {})
        return answer

    def _held_tokens(self, listed: list[dict[str, Any]]) -> int | None:
        """Tokens of the server's context where it lists them (vLLM) and an episode's budget is larger; else None."""
        held = [each.get("max_model_len") for each in listed if each["id"] == self.model]
        short = [each for each in held if isinstance(each, int) and 0 < each < self.sampling.max_episode_tokens]
        return short[0] if short else None

    def _choose(self, wanted: str, listed: list[str]) -> str:
        """The first way to ask that works, or the one that is wanted. ConfigError where none does."""
        said = ""
        if wanted != "chat" and self.frame is not None:
            ids = {TOKEN_IDS: self.frame.prompt_ids(PROBE)} if isinstance(self.frame, ChatFrame) else {}
            for api, prompt in {**ids, TEXT: LETTER}.items():
                said = self._unfit(api, self._probe(COMPLETIONS, {"prompt": prompt}, listed), self.frame)
                if not said:
                    return api
        url, names = self.client.url, self.names
        if wanted == "completions":
            reason = said or (
                f"the raw prompt needs the model's tokenizer; set {names.tokenizer} to its folder or Hub name"
            )
            raise ConfigError(f"{names.api}completions cannot be used at {url}: {reason}")
        answer = self._probe(CHAT, {"messages": PROBE}, listed)
        if not isinstance(answer, RequestRefused):
            return MESSAGES
        if re.search(r"system", answer.words, re.IGNORECASE) and answer.status not in NO_ENDPOINT:
            raise ConfigError(
                f"{url} takes no system message, with which every episode begins ({answer.words}); serve "
                "the model with a chat template that takes one"
            )
        path = "" if re.search(r"/v\d", url) else f"; such addresses end in /v1: see {names.url}"
        raise ConfigError(
            f"{url} answers neither completions nor chat for {names.model}{self.model}: {answer.what}{path}"
        )

    def _unfit(self, api: str, answer: dict[str, Any] | RequestRefused, frame: ChatFrame | TextFrame) -> str:
        """Why the raw prompt cannot be asked for in this way; "" where it can."""
        if isinstance(answer, RequestRefused):
            return answer.what
        if "token_ids" not in answer["choices"][0] and self._loses_thinking(frame):
            return "it returns text without special tokens, and </think> is one in this tokenizer"
        read = (answer.get("usage") or {}).get("prompt_tokens") or 0
        if api == TEXT and read > LETTER_TOKENS:
            return (
                f"it reads {read} tokens where one letter is sent: it puts the prompt into a chat template of its own"
            )
        return ""

    def _loses_thinking(self, frame: ChatFrame | TextFrame) -> bool:
        """Whether text from this server lacks the end of the thinking, which the protocol needs."""
        if isinstance(frame, TextFrame):
            special = frame.special_thinking
        else:
            known = frame.tokenizer.convert_ids_to_tokens(frame.tokenizer.all_special_ids)
            special = END_OF_THINKING in known
        return special and "skip_special_tokens" in self.not_sent

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
                    url, model = self.client.url, self.names.model
                    raise ConfigError(
                        f"{url} has no model {self.model!r}; it has {known}: set {model}... to one"
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
        sampling, frame = self.sampling, self.frame
        given: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        if sampling.top_k:
            given["top_k"] = sampling.top_k
        if path == CHAT:
            given["chat_template_kwargs"] = {"enable_thinking": self.enable_thinking}
        else:
            given["skip_special_tokens"] = given["add_special_tokens"] = False
            if isinstance(frame, ChatFrame):
                given["return_token_ids"] = True
                given["stop_token_ids"] = sorted(frame.stop_ids)
            if isinstance(frame, TextFrame):
                given["stop"] = list(frame.stops)
            elif frame is not None and "stop_token_ids" in self.not_sent:
                given["stop"] = sorted(frame.tokenizer.convert_ids_to_tokens(sorted(frame.stop_ids)))
        return {"model": self.model, **{name: value for name, value in given.items() if name not in self.not_sent}}
