"""The chat frame as text: what a raw prompt is made of where there is no tokenizer, for servers that take text.

An export writes the frame of its model into its single file, which then needs no library to ask a server.
"""

from dataclasses import dataclass
from typing import Any

from sqale_grpo.rollout.chat import ChatFrame

END_OF_THINKING = "</think>"


@dataclass(frozen=True)
class TextFrame:
    """The texts around an episode's messages, as the model's chat template has them.

    ``stops``: the special tokens that end a turn, the one of the template first. ``special_thinking``: ``</think>`` is
    a special token, which some servers leave out of their text.
    """

    before_system: str
    before_question: str
    before_turn: str
    between_turns: str
    before_next_turn: str
    stops: tuple[str, ...]
    special_thinking: bool

    def prompt(self, messages: list[dict[str, str]]) -> str:
        """The raw prompt of an episode's first messages, system and user."""
        system, user = (message["content"] for message in messages)
        return f"{self.before_system}{system}{self.before_question}{user}{self.before_turn}"

    def continued(self, prompt: str, written: str, observation: str) -> str:
        """The raw prompt of the next turn; ``written``: the last one, without the token that ended it."""
        return f"{prompt}{written}{self.stops[0]}{self.between_turns}{observation}{self.before_next_turn}"


def text_frame(frame: ChatFrame) -> TextFrame:
    """The frame of a tokenizer as text."""
    tokenizer: Any = frame.tokenizer
    system, user = "system message stands here", "user message stands here"
    rendered = frame.rendered([{"role": "system", "content": system}, {"role": "user", "content": user}])
    before_system, _, rest = rendered.partition(system)
    before_question, _, before_turn = rest.partition(user)
    between, after = (
        tokenizer.decode(list(ids), skip_special_tokens=False) for ids in (frame.before_user_ids, frame.after_user_ids)
    )
    special = set(tokenizer.convert_ids_to_tokens(tokenizer.all_special_ids))
    others = sorted(frame.stop_ids - {frame.stop_id})
    stops = tuple(tokenizer.convert_ids_to_tokens([frame.stop_id, *others]))
    return TextFrame(before_system, before_question, before_turn, between, after, stops, END_OF_THINKING in special)
