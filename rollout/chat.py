"""The chat frame: which tokens stand around an episode's turns.

Completions are appended to the prompt's tokens and never re-templated, so earlier ``<think>`` blocks stay (card, "Keep
earlier reasoning in context"). The text between two turns is read off the tokenizer's own chat template once.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqale_grpo.env.errors import first_line

if TYPE_CHECKING:  # transformers takes a second to import
    from transformers import PreTrainedTokenizerBase

_SYSTEM, _ANSWER, _USER = "system message stands here", "assistant turn stands here", "user turn stands here"

OTHER_TEMPLATE = "use an instruction-tuned model, or put a chat_template.jinja of another into its folder"


@dataclass(frozen=True)
class ChatFrame:
    """Renders prompts and later user turns as token ids.

    ``stop_id`` ends a turn (``<|im_end|>``); ``stop_ids`` are all tokens on which sampling stops.
    """

    tokenizer: Any
    enable_thinking: bool
    before_user_ids: tuple[int, ...]
    after_user_ids: tuple[int, ...]
    stop_id: int
    stop_ids: frozenset[int]
    plain: Any  # the tokenizer without its added tokens: a ``tokenizers.Tokenizer``
    ordinary: Any  # without those that its files call special: what a policy writes as text, ``</think>`` too

    def prompt_ids(self, messages: list[dict[str, str]]) -> list[int]:
        """Token ids of the episode's first messages, up to where the policy starts to write.

        A question may hold "<|im_end|>" too: such messages are tokenized apart from the template, as plain characters.
        """
        special = self.tokenizer.get_added_vocab()
        if not any(token in message["content"] for message in messages for token in special):
            return self._tokens(self.rendered(messages))
        marks = [f"message {number} stands here" for number in range(len(messages))]
        rest = self.rendered([{**message, "content": mark} for message, mark in zip(messages, marks, strict=True)])
        ids: list[int] = []
        for message, mark in zip(messages, marks, strict=True):
            before, _, rest = rest.partition(mark)
            ids += self._tokens(before) + self._plain_tokens(message["content"])
        return ids + self._tokens(rest)

    def rest_of_user_turn_ids(self, text: str) -> list[int]:
        """Token ids of a user turn's text and of all that stands before the policy's next token.

        ``before_user_ids`` come before them. The parts are tokenized apart, so that a decoder can feed the first while
        the tools that produce ``text`` still run; every driver of an episode does it so, and all see the same tokens.
        """
        return self._plain_tokens(text) + list(self.after_user_ids)

    def rendered(self, messages: list[dict[str, str]]) -> str:
        """The episode's first messages in the model's template, up to where the policy starts to write."""
        return self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=self.enable_thinking
        )

    def _tokens(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _plain_tokens(self, text: str) -> list[int]:
        """A cell of a database may hold "<|im_end|>": told to the policy it is plain characters, and ends no turn."""
        return self.plain.encode(text, add_special_tokens=False).ids

    def written_tokens(self, text: str) -> list[int]:
        """Token ids of what a policy wrote, where only its text is known; a special token's name is characters."""
        return self.ordinary.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int]) -> str:
        """The text of one turn, its stop token left out."""
        if ids and ids[-1] in self.stop_ids:
            ids = ids[:-1]
        return self.tokenizer.decode(ids, skip_special_tokens=False)


def chat_frame(tokenizer: "PreTrainedTokenizerBase", enable_thinking: bool = True) -> ChatFrame:
    """Read the frame off ``tokenizer``'s chat template.

    Raises ValueError where the tokenizer has no chat template or one that takes no system message or does not end an
    assistant turn with a single stop token (``<|im_end|>``, else the end-of-sequence token).
    """
    if not tokenizer.chat_template:
        raise ValueError(
            f"the tokenizer at {tokenizer.name_or_path} has no chat template; use an instruction-tuned model"
        )
    turns = [
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": "question"},
        {"role": "assistant", "content": _ANSWER},
        {"role": "user", "content": _USER},
    ]
    try:
        text = tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, enable_thinking=enable_thinking
        )
    except Exception as error:  # a template raises what it likes: no system role, roles that must alternate
        raise ValueError(
            f"the chat template of {tokenizer.name_or_path} renders no episode ({first_line(error)}); {OTHER_TEMPLATE}"
        ) from error
    if _SYSTEM not in text:
        raise ValueError(
            f"the chat template of {tokenizer.name_or_path} leaves out the system message; {OTHER_TEMPLATE}"
        )
    known = tokenizer.get_vocab()
    stop = "<|im_end|>" if "<|im_end|>" in known else tokenizer.eos_token
    between, found, after_user = text.partition(_ANSWER)[2].partition(_USER)
    if not found or not between.startswith(stop):
        raise ValueError(
            f"the chat template of {tokenizer.name_or_path} does not end an assistant turn with {stop!r}; "
            "the rollout appends turns as tokens and needs that"
        )
    stops = {known[name] for name in ("<|im_end|>", "<|endoftext|>", tokenizer.eos_token) if name in known}
    before_ids, after_ids = (
        tuple(tokenizer(part, add_special_tokens=False)["input_ids"]) for part in (between[len(stop) :], after_user)
    )
    plain, ordinary = _own_tokenizer(tokenizer, keep_added=False), _own_tokenizer(tokenizer, keep_added=True)
    return ChatFrame(tokenizer, enable_thinking, before_ids, after_ids, known[stop], frozenset(stops), plain, ordinary)


def _own_tokenizer(tokenizer: "PreTrainedTokenizerBase", keep_added: bool) -> Any:
    """The same tokenizer as an object of ours, to which the names of special tokens are plain characters.

    Without its added tokens (``keep_added`` False) any text is plain characters. transformers' own switch,
    ``split_special_tokens``, is a state of the tokenizer that all threads share, and leaves tokens whole that a model's
    files do not call special, such as Qwen's ``<think>`` and ``<tool_call>``. Raises ValueError for a tokenizer that is
    written in Python.
    """
    from tokenizers import Tokenizer

    if not getattr(tokenizer, "backend_tokenizer", None):
        raise ValueError(
            f"the tokenizer at {tokenizer.name_or_path} has no tokenizer.json: save it with a release of transformers "
            "that writes one"
        )
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    parts |= {"post_processor": None, "truncation": None, "padding": None}
    if not keep_added:
        parts["added_tokens"] = []
    own = Tokenizer.from_str(json.dumps(parts))
    own.encode_special_tokens = True
    return own
