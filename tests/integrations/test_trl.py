"""TRL's own GRPOTrainer plays our environment through its ``environment_factory``, and means our rewards."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import trl
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from sqale_grpo.corpus import CorpusError, PreparedCorpus
from sqale_grpo.curriculum import gate_closed
from sqale_grpo.integrations.tested import OPEN, check_version
from sqale_grpo.integrations.trl_environment import SqlEnvironment, sql_environment, sql_reward, tasks
from sqale_grpo.reward.score import score_group
from sqale_grpo.rollout.world import open_world

pytestmark = pytest.mark.full
SIGNS = ["<|im_start|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]


@pytest.fixture(scope="module")
def native() -> PreTrainedTokenizerFast:
    """Bytes, with the chat template of Qwen3 that TRL ships: tools are its native calls."""
    words = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(pre_tokenizers.ByteLevel.alphabet())}, merges=[]))
    words.pre_tokenizer, words.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": SIGNS})
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
    return tokenizer


def call(tool: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call><|im_end|>"


class Scripted(GRPOTrainer):
    """TRL's trainer, whose policy says what a script says."""

    def _generate_single_turn(self, prompt_ids: Any, *rest: Any, **more: Any) -> Any:
        self.generation_config.max_new_tokens = 1  # what the random model writes is not read
        out = super()._generate_single_turn(prompt_ids, *rest, **more)
        self.turn = getattr(self, "turn", -1) + 1
        says = []
        for place in range(len(prompt_ids)):
            if self.turn > 1:
                says.append("done<|im_end|>")
                continue
            gold = self.environments[place]._world.question.gold_sql
            sql = (gold, "SELECT 1", "SELECT 1", "SELECT 2")[place % 4]
            says.append(call("run_query", sql=sql) if self.turn == 0 else call("submit_sql", sql=sql))
        ids = [self.processing_class(text, add_special_tokens=False)["input_ids"] for text in says]
        return (ids, None if out[1] is None else [[0.0] * len(each) for each in ids], *out[2:])


@pytest.mark.long
def test_trls_trainer_plays_it_and_means_our_rewards(
    corpus: PreparedCorpus, native: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(native),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            max_position_embeddings=8192,
            eos_token_id=native.eos_token_id,
            pad_token_id=native.pad_token_id,
        )
    )
    data = tasks(corpus, limit=2)
    trainer = Scripted(
        model=model,
        processing_class=native,
        reward_funcs=[sql_reward],
        train_dataset=data,
        environment_factory=sql_environment(corpus, seed=7),
        args=GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=4000,
            max_steps=1,
            max_tool_calling_iterations=4,
            report_to=[],
            use_cpu=True,
            bf16=False,
            logging_steps=1,
            save_strategy="no",
            shuffle_dataset=False,
        ),
    )
    trainer.train()
    wanted: list[float] = []
    for question in range(2):
        with open_world(corpus, 7, OPEN + 1, question) as world:
            answers = [world.question.gold_sql, "SELECT 1", "SELECT 1", "SELECT 2"]
            found = score_group(world.question, world.group.database.path, answers, world.group.sandbox)
            wanted += [outcome.reward for outcome in found]
            assert [outcome.agrees for outcome in found] == [False, True, True, False]
    (logged,) = [line for line in trainer.state.log_history if "reward" in line]
    assert logged["reward"] == pytest.approx(sum(wanted) / 8, abs=1e-6)
    assert logged["tools/call_frequency"] == 2.0 and logged["tools/failure_frequency"] == 0.0


def played(corpus: PreparedCorpus, *sqls: str, question: int = 0) -> SqlEnvironment:
    return batch(corpus, (question, *sqls))[0]


def batch(corpus: PreparedCorpus, *rollouts: tuple) -> list[SqlEnvironment]:
    """One batch's environments, each reset for a question and its queries run."""
    factory = sql_environment(corpus)
    environments = [factory() for _ in rollouts]
    for environment, (question, *sqls) in zip(environments, rollouts, strict=True):
        environment.reset(question=question)
        for sql in sqls:
            environment.run_query(sql)
    return environments


def test_a_groups_gates_and_tables_are_those_of_a_run(corpus: PreparedCorpus) -> None:
    factory = sql_environment(corpus, seed=5)
    environments = [factory() for _ in range(8)]
    for update in (0, 20, 40, 60):
        for environment in environments:
            environment.reset(question=3, update=update)
        gates = [environment._world.episode.gated for environment in environments]
        name, chance = environments[0]._world.question.question_id, 1 - update / 80
        assert gates == [gate_closed(5, update, name, candidate, chance) for candidate in range(8)]
        assert update not in (20, 40) or 0 < sum(gates) < 8
    tables = []
    for _ in range(6):
        for environment in environments:
            environment.reset(question=3)
        assert len({environment._world.group.tables for environment in environments}) == 1
        assert not any(environment._world.episode.gated for environment in environments)
        tables.append(environments[0]._world.group.tables)
    assert len(set(tables)) > 1, "each batch draws anew"


def test_an_end_without_an_answer_is_worth_the_last_query_that_ran(corpus: PreparedCorpus) -> None:
    with open_world(corpus, 42, OPEN + 1, 0) as world:
        gold = world.question.gold_sql
    assert sql_reward(batch(corpus, (0, "SELECT 1", gold, "SELECT nothing FROM nowhere"), (0,))) == [3.0, 0.0]


def test_groups_are_told_apart_by_their_question(corpus: PreparedCorpus) -> None:
    alone = batch(corpus, (0, "SELECT 12345"), (1, "SELECT 12345"))
    together = batch(corpus, (0, "SELECT 12345"), (0, "SELECT 12345"))
    lonely, agreed = sql_reward(alone)[0], sql_reward(together)
    assert lonely is not None and agreed == [pytest.approx(lonely + 0.1, abs=1e-5)] * 2


def test_a_gate_that_is_closed_wants_the_query_first(corpus: PreparedCorpus) -> None:
    environment = sql_environment(corpus)()
    environment.reset(question=0, update=0)
    assert "run exactly this query" in environment.submit_sql("SELECT 1")
    environment.run_query("SELECT 1")
    assert environment.submit_sql("SELECT 1") == "The task has ended."
    with pytest.raises(ValueError, match="the task has ended"):
        environment.list_tables()


def test_every_tool_of_the_protocol_is_offered(corpus: PreparedCorpus) -> None:
    environment = played(corpus)
    names = environment.list_tables().split("\n")[1].split(", ")
    assert "CREATE TABLE" in environment.describe_table(names[0])
    assert environment.foreign_keys() and environment.join_path(names[0], names[-1])
    assert environment.sample_rows(names[0], limit=1)


def test_mistakes_are_sentences(corpus: PreparedCorpus, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="prepare"):
        sql_environment(tmp_path / "nothing")
    with pytest.raises(CorpusError, match="no question number 999"):
        sql_environment(corpus)().reset(question=999)
    with pytest.raises(RuntimeError, match="reset comes first"):
        sql_environment(corpus)().list_tables()


def test_another_version_than_the_tested_one_is_named() -> None:
    with pytest.warns(UserWarning, match=r"trl .* is installed, and this adapter is tested with 0\.1"):
        check_version("trl", "0.1", "train")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_version("trl", "1.16", "train")
    with pytest.raises(ImportError, match=r"needs no-such-thing; install it: pip install 'sqale-grpo\[none\]'"):
        check_version("no-such-thing", "1", "none")


def test_tasks_are_the_questions(corpus: PreparedCorpus) -> None:
    rows = tasks(corpus)
    assert isinstance(rows, Dataset) and rows["question"][:] == list(range(len(corpus)))
