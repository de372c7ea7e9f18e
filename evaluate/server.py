"""A model behind an OpenAI-compatible server, played over completions with the raw prompt, or over chat.

Completions continue the episode's own tokens, so earlier ``<think>`` blocks stay as they were written; they need the
model's tokenizer here. Servers that take and return token ids (vLLM) get and give these; others get text. Chat sends
messages and leaves the template to the server, which may drop earlier thinking. The summary says which it was.

An episode played over a chat endpoint: messages instead of tokens, the template being the server's.
"""

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sqale_grpo.env.episode import Finished
from sqale_grpo.evaluate.backend import Backend, Failure
from sqale_grpo.evaluate.records import TokenCounts, token_counts
from sqale_grpo.rollout.chat import ChatFrame
from sqale_grpo.rollout.http import HttpClient, RequestRefused, ServerError
from sqale_grpo.rollout.play import OpenEpisode
from sqale_grpo.rollout.requests import Completion, play_requests
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.evaluation import EvaluationConfig, ServerConfig
from sqale_grpo.settings.sampling import Sampling

Ask = Callable[[list[dict[str, str]], int, str], dict[str, Any]]  # messages, most tokens, name of the request
ROOM = 2  # tokens that a next turn needs at least: one of its own and one to end it


def play_chat(each: OpenEpisode, sampling: Sampling, ask: Ask) -> TokenCounts:
    """Play one episode to its end; the token counts are the server's own.

    Thinking that the server returns apart is put back before the text, so that it stays in the context where the
    server's template keeps it. The budget of an episode is held as far as the server reports its tokens.
    """
    episode = each.episode
    messages = [dict(message) for message in episode.prompt()]
    prompt = written = processed = reprocessed = 0
    context = 0  # tokens of the conversation so far, as of the last answer
    while episode.finished is None:
        room = min(sampling.max_turn_tokens, sampling.max_episode_tokens - context)
        if room < ROOM:
            episode.stop("token_budget")
            break
        answer = ask(messages, room, f"{each.key} {len(messages)}")
        usage = answer.get("usage") or {}
        read, wrote = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
        prompt = prompt or read
        written += wrote
        context = max(context, read + wrote)
        processed, reprocessed = context, reprocessed + read + wrote
        text = turn_text(answer["choices"][0].get("message") or {})
        ended = episode.step(text)
        if isinstance(ended, Finished):
            break
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": ended.text}]
    return TokenCounts(prompt, max(0, processed - prompt), written, processed, reprocessed)


def turn_text(message: dict[str, Any]) -> str:
    """What the model wrote: its thinking, where the server returns it apart, and its text."""
    thinking = message.get("reasoning_content") or message.get("reasoning") or ""
    content = message.get("content") or ""
    return f"<think>\n{thinking.strip()}\n</think>\n\n{content}" if thinking else content


COMPLETIONS, CHAT = "/completions", "/chat/completions"
NO_ENDPOINT = {404, 405, 501}
TOKEN_IDS, TEXT, MESSAGES = "completions with token ids", "completions with text", "chat"
PROBE_TOKENS = 1


class ServerBackend:
    """Plays every episode in a thread of its own, ``server.concurrency`` at once."""

    def __init__(self, config: EvaluationConfig, client: HttpClient, frame: ChatFrame | None) -> None:
        """``frame``: of the model's tokenizer, None where it is not known. Raises ConfigError like ``open_server``."""
        self.config, self.client, self.frame = config, client, frame
        self.sampling = config.sampling.sampling()
        self.not_sent: set[str] = set()  # parameters of no importance to the protocol that this server refuses
        self.length = "max_tokens"
        self.api = self._choose()
        self.facts: dict[str, Any] = {
            "parameters": config.parameters,
            "api": self.api,
            "not_sent": sorted(self.not_sent),
        }

    def play(self, episodes: Sequence[OpenEpisode], pool: ThreadPoolExecutor) -> list[TokenCounts | Failure]:
        """Every episode to its end; one whose request failed after all retries is a Failure."""
        threads = ThreadPoolExecutor(self.config.server.concurrency, thread_name_prefix="server")
        try:
            return list(threads.map(lambda each: self._play(each, pool), episodes))
        finally:
            threads.shutdown(cancel_futures=True)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def ask(self, path: str, body: dict[str, Any], max_tokens: int, name: str) -> dict[str, Any]:
        """One request with the sampling parameters that this server takes."""
        answer = self.client.post(path, {**body, **self._parameters(path), self.length: max_tokens}, name)
        if problem := unreadable(answer):
            raise RequestRefused(200, f"{problem}: {self.client.shown(answer)}")
        return answer

    def _play(self, each: OpenEpisode, pool: ThreadPoolExecutor) -> TokenCounts | Failure:
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
        return self.ask(CHAT, {"messages": messages}, max_tokens, name)

    def _choose(self) -> str:
        """The first way to ask that works, or the one that ``server.api`` names. ConfigError where none does."""
        listed = self.client.models()
        wanted = self.config.server.api
        said = ""
        if wanted != "chat" and self.frame is not None:
            ids = self.frame.prompt_ids([{"role": "user", "content": "Hello"}])
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
        answer = self._probe(CHAT, {"messages": [{"role": "user", "content": "Hello"}]}, listed)
        if not isinstance(answer, RequestRefused):
            return MESSAGES
        raise ConfigError(
            f"{self.client.url} answers neither completions nor chat for model={self.config.model}: {answer.what}"
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
        answer = backend.ask(COMPLETIONS, {"prompt": prompt}, max_tokens, name)
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
