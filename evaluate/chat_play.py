"""An episode played over a chat endpoint: messages instead of tokens, the template being the server's."""

from collections.abc import Callable
from typing import Any

from env.episode import Finished
from evaluate.records import TokenCounts
from train.rollout.tokens import Sampling
from train.rollout.update import OpenEpisode

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
