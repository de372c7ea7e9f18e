"""vLLM as an Engine: whole episodes with tools, the budgets, and log-probabilities that are the model's own."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers import AutoTokenizer
from vllm.v1.engine.core_client import InprocClient

from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.rollout.chat import chat_frame
from sqale_grpo.rollout.policy import load_policy
from sqale_grpo.rollout.requests import play_requests
from sqale_grpo.rollout.vllm_engine import VllmEngine, load_vllm
from sqale_grpo.settings.keys import ModelConfig
from sqale_grpo.settings.sampling import Sampling
from tests.vllm.taught import apart, episodes, shop_database, taught_policy

MEAN = 0.04  # nats a token: bfloat16 sums in another order (measured: 0.018)
TOKENS = 1_024


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "shop.sqlite"
    shop_database(path)
    return path


@pytest.fixture(scope="module")
def policy(tmp_path_factory, database):
    torch.set_num_threads(1)
    return taught_policy(tmp_path_factory.mktemp("policy"), database)


@pytest.fixture(scope="module")
def frame(policy):
    return chat_frame(AutoTokenizer.from_pretrained(policy))


@pytest.fixture(scope="module")
def llm(policy):
    return load_vllm(str(policy), TOKENS, memory_share=0.3, max_requests=16, seeded=True)


@pytest.fixture
def play(llm, frame, database):
    def run(sampling, count=6, seeded=True):
        with Sandbox(database) as sandbox, ThreadPoolExecutor(4) as pool:
            made = episodes(database, count, sandbox)
            with VllmEngine(llm, sampling, frame.stop_ids, seeded) as engine:
                return made, play_requests(engine, frame, made, list(range(count)), sampling, pool)

    return run


def test_episodes_call_tools_and_submit(play, frame):
    made, played = play(Sampling(max_turn_tokens=60, max_episode_tokens=TOKENS), seeded=False)
    assert all(e.finished for e in made)
    right = [
        e for e in made if e.finished.ended_by == "submit_sql" and any(c.tool == "run_query" for c in e.turns[0].calls)
    ]
    assert len(right) >= 3, [e.turns for e in made]
    for episode, tokens in zip(made, played, strict=True):
        assert tokens.completion_ids[-1] == frame.stop_id
        assert len(tokens.completion_ids) == len(tokens.logprobs) == len(tokens.env_mask)
        assert frame.decode(tokens.completion_ids).startswith(episode.turns[0].completion)


def test_logprobs_are_those_of_transformers(play, policy):
    _, played = play(Sampling(max_turn_tokens=60, max_episode_tokens=TOKENS))
    model = load_policy(ModelConfig(weights_dtype="bfloat16"), policy).eval()
    assert apart(model, played) < MEAN
    assert all(
        lp <= 0.0 and (mask or lp == 0.0) for t in played for lp, mask in zip(t.logprobs, t.env_mask, strict=True)
    )


def test_logprobs_are_under_the_temperature(play, policy):
    _, played = play(Sampling(temperature=2.0, max_turn_tokens=40, max_episode_tokens=TOKENS))
    model = load_policy(ModelConfig(weights_dtype="bfloat16"), policy).eval()
    assert apart(model, played) > 2 * MEAN
    head = model.lm_head.forward
    model.lm_head.forward = lambda states: head(states) / 2.0
    assert apart(model, played) < MEAN


@pytest.mark.parametrize("budget", [2, 17, 60])
def test_budgets_hold(play, frame, budget):
    longest = max(len(t.prompt_ids) for t in play(Sampling(max_turn_tokens=1, max_episode_tokens=TOKENS), 3)[1])
    made, played = play(Sampling(max_turn_tokens=12, max_episode_tokens=longest + budget), 3)
    for episode, tokens in zip(made, played, strict=True):
        assert len(tokens) <= longest + budget and tokens.completion_ids[-1] == frame.stop_id
        assert all(len(frame.tokenizer(turn.completion)["input_ids"]) <= 12 for turn in episode.turns)
    assert any(e.finished.ended_by == "token_budget" for e in made)


def test_seeded_turns_are_drawn_alike_a_second_time(play):
    sampling = Sampling(temperature=1.5, max_turn_tokens=20, max_episode_tokens=TOKENS)
    _, together = play(sampling, 4)
    _, again = play(sampling, 4)
    assert [t.completion_ids for t in together] == [t.completion_ids for t in again]


def test_an_engine_that_cannot_hold_an_episode_is_refused(llm, frame):
    with pytest.raises(ValueError, match="holds 1024 tokens"):
        VllmEngine(llm, Sampling(max_episode_tokens=2_000), frame.stop_ids)


def test_what_an_error_left_unwritten_is_not_handed_to_the_next(play, llm, frame):
    sampling = Sampling(max_turn_tokens=200, max_episode_tokens=TOKENS)
    with pytest.raises(KeyboardInterrupt), VllmEngine(llm, sampling, frame.stop_ids) as engine:
        engine.submit(99, frame.prompt_ids([{"role": "user", "content": "How many shops?"}]), 200)
        engine.collect()
        raise KeyboardInterrupt
    assert not llm.llm_engine.has_unfinished_requests()
    made, _ = play(Sampling(max_turn_tokens=20, max_episode_tokens=TOKENS), 2)
    assert all(episode.finished for episode in made)


def test_the_engine_dies_with_its_process(llm):
    """One in a process of its own outlives a kill -9 of its parent (measured), and holds the GPU's memory."""
    assert isinstance(llm.llm_engine.engine_core, InprocClient)
