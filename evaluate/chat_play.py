"""An episode played over a chat endpoint: messages instead of tokens, the template being the server's."""

from collections.abc import Callable
from typing import Any

from sqale_grpo.env.episode import Finished
from sqale_grpo.evaluate.records import TokenCounts
from sqale_grpo.rollout.http import RequestRefused
from sqale_grpo.rollout.world import World
from sqale_grpo.settings.sampling import Sampling

Ask = Callable[[list[dict[str, str]], int, str], dict[str, Any]]  # messages, most tokens, name of the request
ROOM = 2  # tokens that a next turn needs at least: one of its own and one to end it
EMPTY = "(no text)"  # sent for a turn without text: many servers refuse a message that holds none


class ContextFull(RequestRefused):
    """The server's context has no room for a further turn."""


def play_chat(each: World, sampling: Sampling, ask: Ask) -> TokenCounts:
    """Play one episode to its end; the token counts are the server's own.

    Thinking that the server returns apart is put back before the text, so that it stays in the context where the
    server's template keeps it. The budget of an episode is held as far as the server reports its tokens; where its
    context is full (``ask`` raises ContextFull) the episode ends as at the end of its budget.
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
        try:
            answer = ask(messages, room, f"{each.key} {len(messages)}")
        except ContextFull:
            episode.stop("token_budget")
            break
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
        said = text if text.strip() else EMPTY
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": ended.text}]
    return TokenCounts(prompt, max(0, processed - prompt), written, processed, reprocessed)


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
