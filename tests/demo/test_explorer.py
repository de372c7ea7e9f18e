"""The scripted explorer: right when it looks everything up, wrong in the demo's ways when it does not."""

import random
from pathlib import Path

import pytest

from sqale_grpo.corpus import PreparedCorpus, prepare
from sqale_grpo.corpus.demo import DemoShape, write_demo_corpus
from sqale_grpo.demo.explorer import CAREFUL, Habits, guess, play_script, read_plan
from sqale_grpo.env.episode import Episode
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.reward import score_candidate


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    folder: Path = tmp_path_factory.mktemp("demo")
    write_demo_corpus(folder / "source", 3, DemoShape(schemas=(8, 1), questions=(12, 1)))
    return prepare("sqale", folder / "source", folder / "prepared", progress=False)


def outcomes(corpus: PreparedCorpus, habits: Habits, gated: bool = False) -> list:
    chance, played = random.Random(5), []
    for index in range(len(corpus)):
        question = corpus.question(index)
        with Sandbox(corpus.database(question.db_id)) as sandbox:
            episode = Episode(question.text, sandbox, gated=gated)
            play_script(episode, question.gold_sql, habits, chance)
            assert episode.finished is not None
            outcome = score_candidate(question.gold_sql, sandbox.database, episode.finished.sql, sandbox)
            played.append((episode, outcome))
    return played


def test_every_gold_query_is_read_and_written_back(corpus):
    for sql in corpus.gold_sqls():
        assert read_plan(sql).sql() == sql
    with pytest.raises(ValueError, match="only questions of the demo corpus"):
        read_plan("SELECT 1")


@pytest.mark.parametrize("gated", [False, True])
def test_a_careful_explorer_is_right_and_keeps_its_turns(corpus, gated):
    for episode, outcome in outcomes(corpus, CAREFUL, gated):
        assert outcome.tier == "equivalent"
        assert episode.finished.ended_by in ("submit_sql", "final_turn")
        assert all(call.error in (None, "gate") for turn in episode.turns for call in turn.calls)


def test_each_look_up_is_needed(corpus):
    def rate(habits: Habits) -> float:
        played = outcomes(corpus, habits)
        return sum(outcome.tier == "equivalent" for _, outcome in played) / len(played)

    assert rate(Habits(tables=0.0)) < 0.3
    assert rate(Habits(columns=0.0)) < 0.5
    assert 0.4 < rate(Habits(values=0.0)) < 0.9  # a third of the columns hold codes


def test_what_was_looked_up_is_not_guessed(corpus):
    plan = read_plan(corpus.gold_sqls()[0])
    assert guess(plan, True, True, True) == plan
    assert guess(plan, True, True, False).table == plan.table
    assert guess(plan, False, True, True).column == plan.column
