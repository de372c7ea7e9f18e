"""Episodes as requests: the same tokens, masks and ends as lockstep decoding, and no episode waits for another."""

import json
import threading

import pytest
import torch

from sqale_grpo.env.episode import Episode, EpisodeLimits
from sqale_grpo.env.prompts import load_prompts
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.rollout.chat import chat_frame
from sqale_grpo.rollout.lockstep import play
from sqale_grpo.rollout.requests import Completion, play_requests
from sqale_grpo.rollout.tokens import NoProbability, RolloutStats
from sqale_grpo.settings.sampling import Sampling
from tests.conftest import ROOT

PROMPTS = load_prompts(ROOT / "configs" / "prompts" / "demo.json")


@pytest.fixture
def sandbox(shop_database):
    with Sandbox(shop_database) as opened:
        yield opened


@pytest.fixture
def frame(tokenizer):
    return chat_frame(tokenizer)


class GenerateEngine:
    """transformers' ``generate``, greedy, one request a call and the newest first: an order unlike lockstep's."""

    def __init__(self, model, frame):
        self.model, self.frame, self.waiting = model, frame, []

    def submit(self, request, token_ids, max_tokens):
        self.waiting.append((request, token_ids, max_tokens))

    def collect(self):
        request, ids, most = self.waiting.pop()
        stops = sorted(self.frame.stop_ids)
        with torch.no_grad():
            written = self.model.generate(
                torch.tensor([ids]), do_sample=False, max_new_tokens=most, eos_token_id=stops, pad_token_id=stops[0]
            )[0, len(ids) :].tolist()
        return [Completion(request, written, [0.0] * len(written))]


class WritesTexts:
    """Completes an episode's turns with the texts given for its key; keeps what it was asked."""

    def __init__(self, frame, texts):
        self.frame, self.texts, self.waiting, self.asked = frame, texts, [], []

    def submit(self, request, token_ids, max_tokens):
        self.asked.append((request, token_ids, max_tokens))
        self.waiting.append(request)

    def collect(self):
        request = self.waiting.pop(0)
        turn = sum(1 for asked, *_ in self.asked if asked == request) - 1
        ids = self.frame.tokenizer(self.texts[request][turn])["input_ids"]
        return [Completion(request, [*ids, self.frame.stop_id], [-1.0] * (len(ids) + 1))]


def some_episodes(sandbox, count):
    questions = ["How many shops?", "What do the shops in oslo sell in all, and since when do they?", "Which cities?"]
    return [
        Episode(questions[i % 3], sandbox, EpisodeLimits(tool_turns=2 + i % 3), prompts=PROMPTS) for i in range(count)
    ]


@pytest.mark.parametrize("budget", [4_000, 2, 30, 77, 120])
def test_requests_give_what_lockstep_gives(random_policy, frame, sandbox, pool, budget):
    first, second = some_episodes(sandbox, 5), some_episodes(sandbox, 5)
    longest = max(len(frame.prompt_ids(e.prompt())) for e in first)
    sampling = Sampling(temperature=0.0, max_turn_tokens=12, max_episode_tokens=longest + budget)
    expected = play(random_policy, frame, first, list(range(5)), sampling, pool)
    got = play_requests(GenerateEngine(random_policy, frame), frame, second, list(range(5)), sampling, pool)
    for a, b in zip(expected, got, strict=True):
        assert (a.prompt_ids, a.completion_ids, a.env_mask) == (b.prompt_ids, b.completion_ids, b.env_mask)
    assert [e.finished for e in first] == [e.finished for e in second]
    assert [e.turns for e in first] == [e.turns for e in second]


def call(tool, **args):
    return json.dumps({"tool": tool, "args": args})


def test_tools_answer_the_calls_and_a_submission_ends_the_episode(frame, sandbox, pool):
    sql = "SELECT count(*) FROM shops"
    engine = WritesTexts(frame, {7: [call("run_query", sql=sql), call("submit_sql", sql=sql)]})
    (episode,) = some_episodes(sandbox, 1)
    (tokens,) = play_requests(engine, frame, [episode], [7], Sampling(), pool)
    assert episode.finished.ended_by == "submit_sql" and episode.finished.sql == sql
    assert "count(*)\n3" in episode.turns[0].observation
    # The second request holds everything before it, so an engine with a prefix cache reads it once.
    assert engine.asked[1][1][: len(tokens.prompt_ids)] == tokens.prompt_ids
    assert engine.asked[1][1] == (tokens.prompt_ids + tokens.completion_ids)[: len(engine.asked[1][1])]
    assert all((logprob == -1.0) == bool(mask) for logprob, mask in zip(tokens.logprobs, tokens.env_mask, strict=True))


def test_an_episode_does_not_wait_for_the_tools_of_another(frame, sandbox, pool):
    """The second episode's tools hang until the first has ended."""
    sql = "SELECT count(*) FROM shops"
    turns = [call("run_query", sql=sql), call("submit_sql", sql=sql)]
    quick, slow = some_episodes(sandbox, 2)
    step, ended = slow.step, threading.Event()
    slow.step = lambda text: (ended.wait(20), step(text))[1]

    class Watch(WritesTexts):
        def collect(self):
            found = super().collect()
            if quick.finished or (found[0].request == 0 and len([a for a in self.asked if a[0] == 0]) == 2):
                ended.set()
            return found

    engine = Watch(frame, {0: turns, 1: turns})
    stats = RolloutStats()
    play_requests(engine, frame, [quick, slow], [0, 1], Sampling(), pool, stats)
    assert [request for request, *_ in engine.asked] == [0, 1, 0, 1]
    assert slow.finished and quick.finished and stats.seconds < 15


def test_an_engine_that_writes_past_a_stop_token_is_refused(frame, sandbox, pool):
    engine = WritesTexts(frame, {0: ["SELECT 1<|im_end|>"]})
    with pytest.raises(RuntimeError, match="past its budget"):
        play_requests(engine, frame, some_episodes(sandbox, 1), [0], Sampling(), pool)


@pytest.mark.parametrize("logprob", [float("nan"), float("-inf"), float("inf"), None])
@pytest.mark.parametrize("position", [0, 5])
def test_a_token_without_a_probability_ends_the_run(frame, sandbox, pool, logprob, position):
    """As of an engine whose logits are all NaN: it would write token 0 to the end, and nothing else would show it."""

    class Broken(WritesTexts):
        def collect(self):
            (whole,) = super().collect()
            whole.logprobs[position] = logprob
            return [whole]

    (episode,) = some_episodes(sandbox, 1)
    with pytest.raises(NoProbability, match=f"has the log-probability {logprob}") as error:
        play_requests(Broken(frame, {0: ["SELECT count(*) FROM shops"]}), frame, [episode], [0], Sampling(), pool)
    assert "--preflight" in str(error.value) and "\n" not in str(error.value)


def test_a_turn_that_the_engine_cut_short_is_a_turn(frame, sandbox, pool):
    """As of a server whose context is shorter than the budget."""

    class Cuts(WritesTexts):
        def collect(self):
            (whole,) = super().collect()
            return [Completion(whole.request, whole.token_ids[:3], whole.logprobs[:3])]

    (episode,) = some_episodes(sandbox, 1)
    engine = Cuts(frame, {0: ["SELECT count(*) FROM shops"] * 3})
    (tokens,) = play_requests(engine, frame, [episode], [0], Sampling(), pool)
    assert len(episode.turns) == 3 and episode.finished is not None
    assert sum(tokens.env_mask) == 9 and tokens.completion_ids[-1] == frame.stop_id


def test_a_question_may_come_twice_in_an_update(frame, sandbox, pool):
    engine = WritesTexts(frame, {key: [call("submit_sql", sql=f"SELECT {key}")] for key in (4, 5, 6)})
    made = some_episodes(sandbox, 3)
    play_requests(engine, frame, made, [4, 5, 4], Sampling(), pool)
    assert [episode.finished.sql for episode in made] == ["SELECT 4", "SELECT 5", "SELECT 6"]
