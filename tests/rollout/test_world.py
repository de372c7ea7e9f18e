"""A world by itself is the one that training and evaluation play in; what it refuses is one sentence."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy
import pytest

from sqale_grpo.corpus import CorpusError, PreparedCorpus, prepare
from sqale_grpo.corpus.demo import DemoShape
from sqale_grpo.curriculum import gate_closed
from sqale_grpo.env.episode import Finished, Observation
from sqale_grpo.reward import with_agreement
from sqale_grpo.rollout.group import episode_settings
from sqale_grpo.rollout.world import EpisodeJob, World, open_world, open_worlds, question_index
from sqale_grpo.settings.evaluation import EvaluationConfig
from sqale_grpo.settings.keys import Config
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    shape = DemoShape(tables=(8, 30), rows=20, schemas=(6, 1), questions=(2, 1))
    return prepare("demo", None, tmp_path_factory.mktemp("demo") / "prepared", shape=shape, progress=False)


def play(world: World, sql: str) -> Finished:
    """Run a query, then submit it, as a gated episode wants it."""
    for tool in ("run_query", "submit_sql"):
        ended = world.step(json.dumps({"tool": tool, "args": {"sql": sql}}))
    assert isinstance(ended, Finished)
    return ended


def facts(world: World) -> tuple:
    return world.question, world.group.tables, world.episode.gated, world.key, world.prompt()


def test_a_world_is_the_one_that_a_batch_holds(corpus: PreparedCorpus) -> None:
    config = Config(seed=5)
    jobs = [EpisodeJob(index, candidate, False, (5, 3)) for index in (0, 4) for candidate in (0, 1)]
    with ExitStack() as stack:
        together = [facts(world) for world in open_worlds(corpus, jobs, episode_settings(config, "sampled"), stack)]
    for job, (question, tables, _, key, prompt) in zip(jobs, together, strict=True):
        for name in (job.index, question.question_id):
            with open_world(corpus.directory, 5, 3, name, job.candidate, config) as world:
                alone = facts(world)
                assert (alone[0], alone[1], alone[3], alone[4]) == (question, tables, key, prompt)
                assert alone[2] == gate_closed(5, 3, question.question_id, job.candidate, 1 - 3 / 80)


def test_a_world_is_played_scored_and_closed(corpus: PreparedCorpus) -> None:
    with open_world(corpus, 1, 0, 2) as world:
        with pytest.raises(RuntimeError, match="the episode goes on"):
            world.outcome()
        assert [message["role"] for message in world.prompt()] == ["system", "user"]
        assert isinstance(world.step('{"tool": "list_tables", "args": {}}'), Observation)
        play(world, world.question.gold_sql)
        path = world.group.database.path
        assert world.outcome().reward == 3.0 and world.outcome() is world.outcome()
    assert not Path(path).exists() and world.outcome().tier == "equivalent"
    with pytest.raises(RuntimeError, match="the episode has ended by submit_sql"):
        world.step("again")


def test_candidates_of_a_group_agree(corpus: PreparedCorpus) -> None:
    outcomes = []
    for candidate, sql in enumerate(("SELECT 1", "SELECT 1", "SELECT 2")):
        with open_world(corpus, 1, 200, 0, candidate) as world:
            play(world, sql)
            outcomes.append(world.outcome())
    assert [outcome.agrees for outcome in with_agreement(outcomes)] == [True, True, False]


def test_an_evaluations_world_has_its_schema_and_no_gate(corpus: PreparedCorpus) -> None:
    for candidate in range(3):
        with open_world(corpus, 42, 0, 1, candidate, EvaluationConfig(model="demo", schema="gold")) as world:
            assert not world.episode.gated and set(world.group.tables) >= set(world.question.gold_tables)
            assert set(world.group.sandbox.schema.tables) == set(world.group.tables)


def test_a_number_may_be_one_of_numpy(corpus: PreparedCorpus) -> None:
    assert question_index(corpus, numpy.int64(2)) == 2


@pytest.mark.parametrize(
    ("question", "says"),
    [
        (10**6, "no question number 1000000"),
        (-1, "no question number -1"),
        ("nobody", "no question 'nobody' in .*like"),
    ],
)
def test_a_question_that_is_not_there_is_a_sentence(corpus: PreparedCorpus, question: int | str, says: str) -> None:
    with pytest.raises(CorpusError, match=says):
        open_world(corpus, 1, 0, question)


def test_a_corpus_that_is_not_prepared_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="prepare"):
        open_world(tmp_path / "nothing", 1, 0, 0)


def test_a_world_needs_no_torch() -> None:
    program = "import sys, sqale_grpo.rollout.world; print({'torch', 'transformers', 'trl'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
