"""An episode's tokens over completions: sent and read as ids where a server takes them, as text where it does not."""

from collections.abc import Callable
from typing import Any

from sqale_grpo.rollout.chat import ChatFrame
from sqale_grpo.rollout.requests import Completion
from sqale_grpo.rollout.served_play import ContextFull

AskPrompt = Callable[[dict[str, Any], int, str], dict[str, Any]]  # a request's body, most tokens, its name


class TurnEngine:
    """An Engine of one episode: each turn is one request, answered when it is submitted.

    ``as_text``: the server takes text alone.
    """

    def __init__(self, ask: AskPrompt, frame: ChatFrame, as_text: bool) -> None:
        self._ask, self._frame, self._as_text = ask, frame, as_text
        self._written: list[Completion] = []

    def submit(self, request: int, token_ids: list[int], max_tokens: int) -> None:
        """Ask for the turn. Raises ServerError."""
        prompt = prompt_text(self._frame, token_ids) if self._as_text else token_ids
        try:
            answer = self._ask({"prompt": prompt}, max_tokens, f"{request} {len(token_ids)}")
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
