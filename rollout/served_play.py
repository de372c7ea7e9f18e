"""An episode played turn by turn with a server that is sent text: messages, or the raw prompt of a text frame."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from sqale_grpo.env.episode import Episode, Finished
from sqale_grpo.rollout.http import RequestRefused
from sqale_grpo.rollout.text_frame import TextFrame
from sqale_grpo.settings.sampling import Sampling

Ask = Callable[[dict[str, Any], int, str], dict[str, Any]]  # a request's body, most tokens, its name
ROOM = 2  # tokens that a next turn needs at least: one of its own and one to end it
EMPTY = "(no text)"  # sent for a turn without text: many servers refuse a message that holds none


class ContextFull(RequestRefused):
    """The server's context has no room for a further turn."""


@dataclass(frozen=True)
class Usage:
    """Tokens of an episode by the server's own count: of its prompt, written by the policy, processed once in all, and
    processed where every turn reads the whole context again. ``shrunk``: a turn read less than the one before it, as
    where a server cuts what its context does not hold.
    """

    prompt: int = 0
    written: int = 0
    processed: int = 0
    reprocessed: int = 0
    shrunk: bool = False


class Conversation(Protocol):
    """An episode so far, as the server is sent it."""

    def body(self) -> dict[str, Any]:
        """Its part of a request."""
        ...

    def written(self, choice: dict[str, Any]) -> str:
        """What the policy wrote, from the server's choice."""
        ...

    def add(self, written: str, observation: str) -> None:
        """Take a turn and the environment's answer."""
        ...


class ChatConversation:
    """Messages; the template is the server's.

    Thinking that the server returns apart is put back before the text, so that it stays in the context where the
    server's template keeps it.
    """

    def __init__(self, first: list[dict[str, str]]) -> None:
        self.messages = [dict(message) for message in first]

    def body(self) -> dict[str, Any]:
        """The messages."""
        return {"messages": self.messages}

    def written(self, choice: dict[str, Any]) -> str:
        """The message's text, with its thinking."""
        return turn_text(choice.get("message") or {})

    def add(self, written: str, observation: str) -> None:
        """Two messages."""
        said = written if written.strip() else EMPTY
        self.messages += [{"role": "assistant", "content": said}, {"role": "user", "content": observation}]


class RawConversation:
    """The raw prompt as text; a special token's name in a cell of the database is that token to the server."""

    def __init__(self, first: list[dict[str, str]], frame: TextFrame) -> None:
        self.frame, self.prompt = frame, frame.prompt(first)

    def body(self) -> dict[str, Any]:
        """The prompt."""
        return {"prompt": self.prompt}

    def written(self, choice: dict[str, Any]) -> str:
        """The text up to the first token that ends a turn."""
        text = choice.get("text") or ""
        ends = [at for stop in self.frame.stops if (at := text.find(stop)) >= 0]
        return text[: min(ends, default=len(text))]

    def add(self, written: str, observation: str) -> None:
        """A turn in the frame."""
        self.prompt = self.frame.continued(self.prompt, written, observation)


def play_text(episode: Episode, key: int, conversation: Conversation, sampling: Sampling, ask: Ask) -> Usage:
    """Play one episode to its end; the token counts are the server's own.

    The budget of an episode is held as far as the server reports its tokens; where its context is full (``ask`` raises
    ContextFull) the episode ends as at the end of its budget.
    """
    prompt = written = reprocessed = last = 0
    context = 0  # tokens of the conversation so far, as of the last answer
    shrunk = False
    while episode.finished is None:
        room = min(sampling.max_turn_tokens, sampling.max_episode_tokens - context)
        if room < ROOM:
            episode.stop("token_budget")
            break
        try:
            answer = ask(conversation.body(), room, f"{key} {len(episode.turns)}")
        except ContextFull:
            episode.stop("token_budget")
            break
        usage = answer.get("usage") or {}
        read, wrote = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
        shrunk, last = shrunk or 0 < read < last, read
        prompt = prompt or read
        written += wrote
        context = max(context, read + wrote)
        reprocessed += read + wrote
        text = conversation.written(answer["choices"][0])
        ended = episode.step(text)
        if isinstance(ended, Finished):
            break
        conversation.add(text, ended.text)
    return Usage(prompt, written, context, reprocessed, shrunk)


def turn_text(message: dict[str, Any]) -> str:
    """What the model wrote: its thinking, where the server returns it apart, and its text.

    Thinking without any text is thinking that was not ended: servers return a turn without ``</think>`` so, and the
    protocol reads its calls as it does in the raw text.
    """
    thinking, content = (_thinking(message)).strip(), message.get("content") or ""
    if not thinking:
        return content
    return f"<think>\n{thinking}\n</think>\n\n{content}" if content.strip() else f"<think>\n{thinking}"


def is_blank(message: dict[str, Any]) -> bool:
    """Whether all that the model wrote came as thinking."""
    return bool(_thinking(message).strip()) and not (message.get("content") or "").strip()


def _thinking(message: dict[str, Any]) -> str:
    return message.get("reasoning_content") or message.get("reasoning") or ""


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
