"""Lockstep decoding: what it returns is what a plain forward pass of the same tokens says, whatever the batch."""

from itertools import groupby

import pytest
import torch

from sqale_grpo.env.episode import Episode, EpisodeLimits
from sqale_grpo.env.prompts import load_prompts
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.rollout.chat import chat_frame
from sqale_grpo.rollout.lockstep import play
from sqale_grpo.rollout.tokens import RolloutStats
from sqale_grpo.settings.sampling import Sampling
from tests.conftest import ROOT

PROMPTS = load_prompts(ROOT / "configs" / "prompts" / "demo.json")
SAMPLING = Sampling(temperature=1.0, max_turn_tokens=12, max_episode_tokens=4_000)


@pytest.fixture
def sandbox(shop_database):
    with Sandbox(shop_database) as opened:
        yield opened


def episodes(sandbox, count):
    questions = ["How many shops?", "What do the shops in oslo sell in all, and since when do they?", "Which cities?"]
    return [
        Episode(questions[i % 3], sandbox, EpisodeLimits(tool_turns=2 + i % 3), prompts=PROMPTS) for i in range(count)
    ]


def forward_logprobs(model, tokens, temperature=1.0):
    ids = torch.tensor([tokens.prompt_ids + tokens.completion_ids])
    with torch.no_grad():
        logprobs = torch.log_softmax(model(input_ids=ids).logits[0].float() / temperature, -1)
    first = len(tokens.prompt_ids)
    return [logprobs[first + i - 1, token].item() for i, token in enumerate(tokens.completion_ids)]


def test_logprobs_are_those_of_a_forward_pass_without_padding(random_policy, tokenizer, sandbox, pool):
    stats = RolloutStats()
    played = play(random_policy, chat_frame(tokenizer), episodes(sandbox, 7), list(range(7)), SAMPLING, pool, stats)
    assert stats.decode_steps >= max(len(t.completion_ids) for t in played)
    for tokens in played:
        expected = forward_logprobs(random_policy, tokens)
        for mask, got, wanted in zip(tokens.env_mask, tokens.logprobs, expected, strict=True):
            assert got == pytest.approx(wanted, abs=2e-4) if mask else got == 0.0


def test_an_episode_does_not_depend_on_its_neighbours(random_policy, tokenizer, sandbox, pool):
    frame = chat_frame(tokenizer)
    together = play(random_policy, frame, episodes(sandbox, 6), list(range(6)), SAMPLING, pool)
    for i in range(6):
        alone = play(random_policy, frame, [episodes(sandbox, 6)[i]], [i], SAMPLING, pool)
        assert alone[0].completion_ids == together[i].completion_ids


def test_completions_are_the_turns_and_the_text_between_them(random_policy, tokenizer, sandbox, pool):
    frame = chat_frame(tokenizer)
    made = episodes(sandbox, 6)
    for episode, tokens in zip(made, play(random_policy, frame, made, list(range(6)), SAMPLING, pool), strict=True):
        assert tokens.completion_ids[-1] == frame.stop_id
        expected = ""
        for turn in episode.turns:
            expected += turn.completion + "<|im_end|>"
            if turn.observation is not None:
                expected += f"\n<|im_start|>user\n{turn.observation}<|im_end|>\n<|im_start|>assistant\n<think>\n"
        text = tokenizer.decode([t for t in tokens.completion_ids if t != tokenizer.pad_token_id])
        assert text == expected.replace("<|endoftext|>", "")
        written = sum(tokens.env_mask)
        assert 0 < written <= 12 * len(episode.turns)
        assert episode.finished is not None and episode.finished.ended_by != "token_budget"


@pytest.mark.parametrize("budget", range(2, 200, 17))
def test_the_token_budget_ends_an_episode_within_it(random_policy, tokenizer, sandbox, pool, budget):
    frame = chat_frame(tokenizer)
    made = episodes(sandbox, 3)
    longest = max(len(frame.prompt_ids(e.prompt())) for e in made)
    sampling = Sampling(max_turn_tokens=12, max_episode_tokens=longest + budget)
    played = play(random_policy, frame, made, [5, 6, 7], sampling, pool)
    for tokens in played:
        assert len(tokens) <= sampling.max_episode_tokens
        assert tokens.completion_ids[-1] == frame.stop_id
        assert len(tokens.env_mask) == len(tokens.logprobs) == len(tokens.completion_ids)
    assert any(e.finished.ended_by == "token_budget" for e in made)
    # Every token that the policy wrote is in the record, those of a turn that the budget cut too.
    for episode, tokens in zip(made, played, strict=True):
        assert [turn.completion for turn in episode.turns] == [frame.decode(ids) for ids in written_turns(tokens)]


def written_turns(tokens):
    """The runs of tokens that the policy wrote."""
    pairs = zip(tokens.completion_ids, tokens.env_mask, strict=True)
    return [[t for t, _ in run] for written, run in groupby(pairs, key=lambda pair: pair[1]) if written]


def test_a_prompt_over_the_budget_ends_its_own_episode_alone(random_policy, tokenizer, sandbox, pool):
    frame = chat_frame(tokenizer)
    made = [*episodes(sandbox, 1), Episode("long " * 900, sandbox, prompts=PROMPTS)]
    played = play(random_policy, frame, made, [1, 2], Sampling(max_turn_tokens=12, max_episode_tokens=900), pool)
    assert made[1].finished.ended_by == "token_budget" and made[1].finished.sql is None
    assert (played[1].completion_ids, played[1].env_mask) == ([frame.stop_id], [0])
    assert sum(played[0].env_mask) > 0 and made[0].finished.ended_by != "token_budget"
