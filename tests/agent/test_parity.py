"""The single file and the training environment: the same tokens in, the same tokens, results, end and answer out."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

from sqale_grpo.agent.answer import turn_record
from sqale_grpo.env.chance import key_int
from sqale_grpo.env.episode import Episode, EpisodeLimits
from sqale_grpo.env.prompts import load_prompts
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.rollout.chat import chat_frame
from sqale_grpo.rollout.group import episode_settings, open_group
from sqale_grpo.rollout.lockstep import play
from sqale_grpo.settings.asked import choose_questions
from sqale_grpo.settings.corpora import open_corpus
from sqale_grpo.settings.load import load_config
from sqale_grpo.settings.of_run import run_evaluation_config
from sqale_grpo.settings.sampling import Sampling
from tests.agent.conftest import PROMPTS
from tests.conftest import ROOT


def assert_same(result, episode, tokens):
    assert result["prompt_ids"] == tokens.prompt_ids
    assert result["completion_ids"] == tokens.completion_ids
    assert result["env_mask"] == tokens.env_mask
    trace = [{key: value for key, value in turn.items() if key != "moment"} for turn in result["trace"]]
    assert trace == [turn_record(turn) for turn in episode.turns]
    assert (result["sql"], result["ended_by"]) == (episode.finished.sql, episode.finished.ended_by)


def load(path):
    return AutoModelForCausalLM.from_pretrained(path, dtype="auto"), chat_frame(AutoTokenizer.from_pretrained(path))


@pytest.mark.long
def test_a_random_policy_plays_the_same_episodes_in_both(agent_module, tiny_model, shop):
    sampling = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "max_turn_tokens": 16, "max_episode_tokens": 1200}
    questions = [f"How many shops are there in city number {number}?" for number in range(8)]
    model, frame = load(tiny_model)
    with Sandbox(shop) as sandbox, ThreadPoolExecutor(4) as pool:
        episodes = [
            Episode(question, sandbox, EpisodeLimits(3), prompts=load_prompts(PROMPTS)) for question in questions
        ]
        played = play(model, frame, episodes, range(8), Sampling(**sampling), pool)
    agent = agent_module.SQaLeAgent(
        *agent_module.transformers_generate(tiny_model),
        sampling=agent_module.Sampling(**sampling),
        episode_limits=agent_module.EpisodeLimits(3),
    )
    asked = [agent_module.AgentQuestion(question, shop, key=key) for key, question in enumerate(questions)]
    for result, episode, tokens in zip(agent.run_many(asked), episodes, played, strict=True):
        assert_same(result, episode, tokens)


@pytest.mark.slow
def test_the_demo_policy_plays_200_test_questions_the_same_in_both(agent_module):
    """Schemas, questions and policy of the demo; the policy is built where it is not cached."""
    from sqale_grpo.demo.initial import policy_path

    config = load_config([ROOT / "configs" / "demo.yaml"])
    corpus = open_corpus(config, "test")
    path = policy_path(config, Console(quiet=True))
    asked = run_evaluation_config(config, "parity", path)
    sampling, settings = asked.sampling.sampling(), episode_settings(asked, asked.schema)
    draw = (config.seed, 0)
    with ExitStack() as stack:
        groups = [
            stack.enter_context(open_group(corpus, index, draw, settings))
            for index in choose_questions(corpus, 200, config.seed)
        ]
        keys = [key_int("tokens", *draw, group.question.question_id, 0) for group in groups]
        asked = [
            agent_module.AgentQuestion(group.question.text, group.database.path, group.question.evidence, key)
            for group, key in zip(groups, keys, strict=True)
        ]
        (model, frame), loaded = load(path), agent_module.transformers_generate(path)
        results = []
        # The policy submits all its answers within the demo's turns; with two it meets the final turn.
        for turns, count in ((settings.episode.tool_turns, 200), (2, 30)):
            limits = replace(settings.episode, tool_turns=turns)
            episodes = [group.episode(replace(settings, episode=limits), False) for group in groups[:count]]
            with ThreadPoolExecutor(8) as pool:
                played = [
                    tokens
                    for start in range(0, count, 64)
                    for tokens in play(model, frame, episodes[start:][:64], keys[start:count][:64], sampling, pool)
                ]
            agent = agent_module.SQaLeAgent(
                *loaded,
                episode_limits=agent_module.EpisodeLimits(**vars(limits)),
                sampling=agent_module.Sampling(**vars(sampling)),
            )
            answers = agent.run_many(asked[:count])
            for result, episode, tokens in zip(answers, episodes, played, strict=True):
                assert_same(result, episode, tokens)
            results += answers
    assert len({result["ended_by"] for result in results}) > 1
    calls = [call for result in results for turn in result["trace"] for call in turn["calls"]]
    assert len({call["tool"] for call in calls if call["error"] is None}) > 3
    assert sum(call["error"] is None for call in calls) > 400 and any(call["error"] for call in calls)
