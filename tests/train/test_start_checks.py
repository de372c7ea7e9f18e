"""What a run refuses before a model is loaded: each mistake is one sentence that says what to do."""

import json
import sqlite3
from pathlib import Path

import pytest

from sqale_grpo.corpus import CorpusError, PreparedCorpus, prepare
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.corpora import gold_limit, prepare_command, prepared_folder
from sqale_grpo.settings.files import read_prompts
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import load_config
from sqale_grpo.settings.of_run import run_evaluation_config
from sqale_grpo.train.start_checks import (
    check_built,
    check_databases,
    check_model_path,
    check_trackers,
    eligible_questions,
)
from tests.helpers.corpora import GOOD, own_questions


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    source = tmp_path_factory.mktemp("mine")
    with sqlite3.connect(source / "shop.sqlite") as connection:
        connection.execute("CREATE TABLE shops (id INTEGER PRIMARY KEY)")
    connection.close()
    lines = ['{"db_id": "shop", "question": "How many?", "sql": "SELECT count(*) FROM shops"}'] * 3
    (source / "questions.jsonl").write_text("\n".join(lines))
    return prepare("jsonl", source, source / "prepared", progress=False)


def config(*overrides: str) -> Config:
    return load_config([], list(overrides))


@pytest.mark.parametrize(
    ("check", "overrides", "says"),
    [
        (lambda made: read_prompts(made.env.prompts), ["env.prompts=nowhere.json"], "no prompts file at nowhere.json"),
        (check_model_path, ["model.path=./nowhere"], "there is no folder ./nowhere; "),
        (check_model_path, ["model.path=/a/b/c"], "or a model on the Hub"),
        (check_model_path, ["model.path=configs"], "configs is no run's folder and holds neither config.json nor"),
    ],
)
def test_a_mistake_is_one_sentence_with_the_fix(check, overrides: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        check(config(*overrides))
    assert says in str(error.value) and "\n" not in str(error.value)


def test_prompts_that_lack_a_key_name_the_file_and_the_key(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text('{"system": "x"}')
    with pytest.raises(ConfigError, match="mine.json lacks the key 'user'"):
        read_prompts(str(path))


def test_what_is_right_passes(corpus: PreparedCorpus) -> None:
    check_built(config())
    read_prompts(None)
    check_model_path(config("model.path=Qwen/Qwen3.5-2B"))
    check_model_path(config("model.path=demo"))
    check_databases(corpus)
    assert eligible_questions(config("train.questions_per_update=3"), corpus) == [0, 1, 2]


@pytest.mark.parametrize(
    ("environment", "overrides", "says"),
    [
        ({"ACCELERATE_USE_FSDP": "true"}, [], "fsdp2.yaml"),
        ({"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}, ["train.use_cpu=true"], "FSDP needs GPUs"),
        (
            {"ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"},
            ["model.lora_rank=8", "model.weights_dtype=bfloat16"],
            "set model.weights_dtype=float32",
        ),
    ],
)
def test_a_launch_that_cannot_work_is_refused(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], overrides: list[str], says: str
) -> None:
    check_built(config("rollout.backend=transformers", *overrides))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=says):
        check_built(config("rollout.backend=transformers", *overrides))


def test_a_tracker_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqale_grpo.train.start_checks.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        check_trackers(config("train.log_to=[wandb]"))


def test_difficulties_that_no_question_has_are_named(corpus: PreparedCorpus) -> None:
    with pytest.raises(ConfigError, match=r"corpus.difficulties=\['hard'\]; it names none: set corpus.difficulties"):
        eligible_questions(config("corpus.difficulties=[hard]"), corpus)


def test_questions_that_take_wrong_answers_for_right_are_left_out(tmp_path: Path) -> None:
    """A copy tells all mistakes of the first two; where there is none, how many pass is not known."""
    with sqlite3.connect(tmp_path / "shop.sqlite") as connection:
        connection.execute("CREATE TABLE shops (id INTEGER PRIMARY KEY, city TEXT, size INTEGER)")
        connection.execute("INSERT INTO shops VALUES (1, 'oslo', 5), (2, 'rome', 6), (3, 'oslo', 9)")
        connection.execute("CREATE TABLE one (id INTEGER PRIMARY KEY, city TEXT, size INTEGER)")
        connection.execute("INSERT INTO one VALUES (1, 'oslo', 5)")
    connection.close()
    golds = [
        "SELECT id FROM shops WHERE size > 5 AND city = 'oslo'",
        "SELECT id FROM one WHERE size > 3 AND id > 0",
        "SELECT count(*) FROM one WHERE rowid > 0",
    ]
    lines = [json.dumps({"db_id": "shop", "question": "?", "sql": sql}) for sql in golds]
    (tmp_path / "questions.jsonl").write_text("\n".join(lines))
    corpus = prepare("jsonl", tmp_path, tmp_path / "prepared", progress=False, counter_databases=1)
    assert corpus.luck(0)[1] > corpus.luck(0)[0] > 0 and corpus.luck(1) == [0, 0, 1]
    asked = ["train.questions_per_update=1", "reward.counter_databases=1"]
    assert eligible_questions(config(*asked), corpus) == [0, 1, 2]
    assert eligible_questions(config(*asked, "corpus.max_luck=0.5"), corpus) == [0, 1]
    with pytest.raises(ConfigError, match="corpus.max_luck wants reward.counter_databases of 1 or more"):
        config("corpus.max_luck=0.2")


def test_a_corpus_with_copies_is_another_folder() -> None:
    plain, copied = config(), config("reward.counter_databases=1")
    assert prepared_folder(copied, "train").name == prepared_folder(plain, "train").name + "-1-copies"
    assert "--counter-databases 1 " in prepare_command(copied, "train")
    assert "--counter-databases" not in prepare_command(plain, "train")
    # Robust accuracy of a policy that learned without: only the test split has copies.
    measured = config("evaluate.counter_databases=2")
    assert (measured.copies("train"), measured.copies("test"), copied.copies("test")) == (0, 2, 1)
    assert prepared_folder(measured, "test").name == prepared_folder(plain, "test").name + "-2-copies"
    assert run_evaluation_config(measured, "x", "demo").reward.counter_databases == 2


def test_a_corpus_is_prepared_within_the_time_that_a_policys_query_has(tmp_path: Path) -> None:
    source = f"corpus.source={own_questions(tmp_path, [GOOD])}"
    mine = config("corpus.name=jsonl", source, "env.query_seconds=7", "evaluate.query_seconds=40")
    assert (gold_limit(mine, "train"), gold_limit(mine, "test")) == (7, 40)
    slower = config("corpus.name=jsonl", source, "env.query_seconds=8")
    assert prepared_folder(mine, "train") != prepared_folder(slower, "train")
    assert gold_limit(config("corpus.name=demo"), "train") == gold_limit(config("corpus.name=demo"), "test")


def test_a_database_that_is_gone_is_noticed(corpus: PreparedCorpus) -> None:
    path = corpus.database("shop")
    path.rename(path.with_suffix(".away"))
    try:
        with pytest.raises(CorpusError, match="it was prepared and is gone"):
            check_databases(corpus)
    finally:
        path.with_suffix(".away").rename(path)
