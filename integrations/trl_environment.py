"""TRL: the tools as an ``environment_factory`` class for whoever has a GRPOTrainer script, and its reward function.

    trainer = GRPOTrainer(
        model="Qwen/Qwen3.5-2B",
        train_dataset=tasks("data/prepared/demo-train"),
        environment_factory=sql_environment("data/prepared/demo-train"),
        reward_funcs=[sql_reward],
        args=GRPOConfig(max_tool_calling_iterations=6, ...),
    )

The tools are native calls of the model's chat template instead of the protocol's JSON, so prompts and tokens are not
those of ``sqale-grpo train``; budget, errors, gate and reward are. Agreement is known where a group lies on one process
whole. Imports no trl: TRL finds the methods by their names and docstrings.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sqale_grpo.corpus import PreparedCorpus, open_prepared
from sqale_grpo.env.episode import Finished
from sqale_grpo.integrations.tested import OPEN, check_version
from sqale_grpo.reward import Outcome, with_agreement
from sqale_grpo.rollout.world import World, open_world
from sqale_grpo.settings.keys import Config

check_version("trl", "1.16", "train")

TASK = (
    "You cannot see the database: explore it with the tools, look up how its values are written, run your SQLite "
    "query, and give the one that answers the question to submit_sql."
)


def tasks(corpus: str | Path | PreparedCorpus, limit: int | None = None) -> Any:
    """A ``datasets.Dataset`` with a row per question: ``prompt``, and ``question``, its number in the corpus."""
    from datasets import Dataset

    prepared = corpus if isinstance(corpus, PreparedCorpus) else open_prepared(corpus)
    number = len(prepared) if limit is None else min(limit, len(prepared))
    prompt = [{"role": "user", "content": TASK}]
    return Dataset.from_list([{"prompt": prompt, "question": index} for index in range(number)])


def sql_environment(
    corpus: str | Path | PreparedCorpus, config: Config | None = None, seed: int = 42
) -> Callable[[], "SqlEnvironment"]:
    """A factory for ``environment_factory``. ``config``: a run's configuration; None: the paper's recipe.

    Raises CorpusError for a folder that is not prepared.
    """
    prepared = corpus if isinstance(corpus, PreparedCorpus) else open_prepared(corpus)
    return partial(SqlEnvironment, Batches(prepared, config, seed))


class Batches:
    """What the environments of one trainer share: the batch that is played, and how often each row came in it.

    TRL repeats a row for each rollout of its group and resets its environments in order, the first one in every batch.
    """

    def __init__(self, corpus: PreparedCorpus, config: Config | None, seed: int) -> None:
        self._corpus, self._config, self._seed = corpus, config, seed
        self._made = self._batch = 0
        self._candidates: Counter[tuple[int | str, int]] = Counter()

    def enter(self) -> int:
        """The number of a new environment."""
        self._made += 1
        return self._made - 1

    def open(self, environment: int, question: int | str, update: int | None) -> World:
        """The world of a row; the next candidate of its group in this batch.

        Without ``update`` each batch draws phrasing and tables anew, behind an open gate.
        """
        if environment == 0:
            self._batch += 1
            self._candidates.clear()
        draw = OPEN + self._batch if update is None else update
        candidate = self._candidates[question, draw]
        self._candidates[question, draw] += 1
        return open_world(self._corpus, self._seed, draw, question, candidate, self._config)


class SqlEnvironment:
    """One rollout's episode. TRL resets it with a row of the dataset and offers its public methods to the model."""

    def __init__(self, batches: Batches) -> None:
        self._batches, self._number = batches, batches.enter()
        self._world: World | None = None

    def reset(self, question: int | str, update: int | None = None, **_: Any) -> str:
        """Open the world of a row: ``question`` of the corpus, and where wanted ``update``.

        Returns the question, which TRL puts after the prompt. Raises CorpusError where the corpus has none such.
        """
        self._close()
        self._world = self._batches.open(self._number, question, update)
        asked, evidence = self._world.question, self._world.settings.evidence
        hint = f"\nHint: {asked.evidence}" if evidence and asked.evidence else ""
        return f"\n\nQuestion: {asked.text}{hint}"

    def list_tables(self) -> str:
        """
        The name of every table.
        """
        return self._call("list_tables")

    def describe_table(self, table_name: str) -> str:
        """
        The CREATE TABLE statement of a table.

        Args:
            table_name: Name of the table.
        """
        return self._call("describe_table", table_name=table_name)

    def foreign_keys(self, table_name: str | None = None) -> str:
        """
        The declared foreign keys as child.column -> parent.column.

        Args:
            table_name: Name of a table; without it all keys are shown.
        """
        return self._call("foreign_keys", table_name=table_name)

    def join_path(self, table_a: str, table_b: str) -> str:
        """
        The shortest chain of foreign-key joins between two tables.

        Args:
            table_a: Name of the first table.
            table_b: Name of the second table.
        """
        return self._call("join_path", table_a=table_a, table_b=table_b)

    def sample_rows(self, table_name: str, limit: int | None = None) -> str:
        """
        The first rows of a table.

        Args:
            table_name: Name of the table.
            limit: How many rows.
        """
        return self._call("sample_rows", table_name=table_name, limit=limit)

    def distinct_values(self, table_name: str, column_name: str, limit: int | None = None) -> str:
        """
        Different values of a column.

        Args:
            table_name: Name of the table.
            column_name: Name of the column.
            limit: How many values.
        """
        return self._call("distinct_values", table_name=table_name, column_name=column_name, limit=limit)

    def run_query(self, sql: str) -> str:
        """
        Runs a read-only query and shows its first rows.

        Args:
            sql: The query.
        """
        return self._call("run_query", sql=sql)

    def submit_sql(self, sql: str) -> str:
        """
        Submits the final query and ends the task.

        Args:
            sql: The final query.
        """
        return self._call("submit_sql", sql=sql)

    def _call(self, tool: str, **arguments: Any) -> str:
        """One call is one tool turn of the episode; ValueError, which TRL tells the model, after its end."""
        if self._world is None:
            raise RuntimeError("reset comes first")
        episode = self._world.episode
        if episode.finished is not None:
            raise ValueError("the task has ended: stop")
        given = {name: value for name, value in arguments.items() if value is not None}
        ended = self._world.step(json.dumps({"tool": tool, "args": given}))
        return "The task has ended." if isinstance(ended, Finished) else ended.text

    def _outcome(self) -> Outcome:
        """What the rollout earned: one that stopped without an answer is worth its last query that ran."""
        if self._world is None:
            raise RuntimeError("reset comes first")
        if self._world.episode.finished is None:
            self._world.episode.stop("token_budget")
        outcome = self._world.outcome()
        self._close()
        return outcome

    def _group(self) -> tuple[str, tuple[int, int]]:
        assert self._world is not None
        return self._world.question.question_id, self._world.job.draw

    def _close(self) -> None:
        if self._world is not None:
            self._world.close()


def sql_reward(environments: Sequence[SqlEnvironment], **_: Any) -> list[float | None]:
    """The rewards of rollouts, for ``reward_funcs``; agreement counts over the rollouts of one question at hand.

    None, which TRL leaves out, for one in which the machine failed.
    """
    groups: dict[Any, list[int]] = {}
    for place, each in enumerate(environments):
        groups.setdefault(each._group(), []).append(place)
    rewards: list[float | None] = [None] * len(environments)
    for places in groups.values():
        outcomes = with_agreement([environments[place]._outcome() for place in places])
        for place, outcome in zip(places, outcomes, strict=True):
            rewards[place] = None if outcome.tier == "void" else outcome.reward
    return rewards
