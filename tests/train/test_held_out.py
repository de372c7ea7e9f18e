"""The held-out questions in a run: what is measured, that the run stays as it is, and which checkpoint is kept."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from sqale_grpo.rollout.held_out import (
    FOLDER,
    LINES,
    add_line,
    best_update,
    drop_after,
    held_out_line,
    read_held_out,
)
from sqale_grpo.rollout.policy_path import resolve_policy
from sqale_grpo.rollout.rates import wilson
from sqale_grpo.settings.asked import choose_questions
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.corpora import open_corpus
from sqale_grpo.settings.load import load_words
from sqale_grpo.settings.run_folder import BEST, finish_checkpoint, keep_best, latest_checkpoint
from sqale_grpo.settings.seal import check_seal, is_whole, seal
from sqale_grpo.train.next_steps import next_lines
from sqale_grpo.train.run import run
from tests.helpers.runs import assert_same_tensors, metrics


def record(tier: str, reward: float | None = 1.0) -> dict:
    return {"tier": tier, "reward": reward, "rounds": 2, "calls": 3, "written_tokens": 40}


def line(update: int, equivalent: float, asked: str = "a") -> dict:
    return {"update": update, "equivalent": equivalent, "asked": asked}


def test_a_line_has_rates_with_their_interval_and_leaves_void_episodes_out():
    records = [record("equivalent", 3.0), *[record("executable")] * 2, record("invalid", 0.0), record("void", None)]
    made = held_out_line(7, records, "x")
    assert (made["update"], made["n"], made["void"], made["asked"]) == (7, 4, 1, "x")
    assert [made[tier] for tier in ("equivalent", "executable", "parsable", "invalid")] == [0.25, 0.5, 0.0, 0.25]
    assert (made["equivalent_low"], made["equivalent_high"]) == wilson(1, 4)
    assert (made["reward"], made["tool_calls"], made["rounds"], made["written_tokens"]) == (1.25, 3.0, 2.0, 40.0)
    assert held_out_line(7, [record("void", None)], "x") == {"update": 7, "asked": "x", "n": 0, "void": 1}


def test_the_first_of_the_best_wins_and_the_untrained_policy_does_not():
    lines = [line(0, 0.9), line(2, 0.4), line(4, 0.5), line(6, 0.5)]
    assert best_update(lines) == 4 and best_update(lines[:1]) is None


def test_lines_that_were_asked_otherwise_are_in_no_curve_and_later_ones_go(tmp_path: Path):
    for each in (line(0, 0.1, "old"), line(2, 0.2), line(4, 0.3), line(2, 0.25)):
        add_line(tmp_path, each)
    assert read_held_out(tmp_path) == [line(2, 0.25), line(4, 0.3)]
    (tmp_path / FOLDER).mkdir()
    for update in (2, 4):
        (tmp_path / FOLDER / f"{update:06d}.parquet").touch()
    drop_after(tmp_path, 3)
    assert read_held_out(tmp_path) == [line(2, 0.25)] and len(list((tmp_path / FOLDER).iterdir())) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["evaluate.keep_best=true"], "evaluate.keep_best.* needs evaluate.every"),
        (
            ["evaluate.keep_best=true", "evaluate.every=75"],
            r"evaluate.every.* must be a multiple of .*save_updates \(50",
        ),
        (
            ["evaluate.every=10", "rollout.backend=vllm_colocate", "rollout.max_episode_tokens=9000"],
            r"max_episode_tokens.* must not be over rollout.max_episode_tokens \(9000\)",
        ),
    ],
)
def test_keys_that_do_not_fit_each_other_are_told(words, told):
    with pytest.raises(ConfigError, match=told):
        load_words(["configs/recipe.yaml", *words])


def test_in_a_scaled_run_the_best_is_still_saved():
    words = ["configs/recipe.yaml", "curriculum.scale_to_run=true", "train.updates=130"]
    scaled = load_words([*words, "evaluate.every=100", "evaluate.keep_best=true"]).scaled()
    assert scaled.evaluate.every == 2 * scaled.train.save_updates == 8
    assert load_words(words).scaled().evaluate.every == 0


def checkpoint(folder: Path, update: int) -> Path:
    path = folder / f"checkpoint-{update}"
    (path / "inner").mkdir(parents=True)
    (path / "model.safetensors").write_text(f"weights {update}")
    (path / "inner" / "state").write_text("x")
    seal(path)
    return path


def test_the_best_checkpoint_outlives_the_others(tmp_path: Path):
    first = checkpoint(tmp_path, 2)
    assert keep_best(tmp_path, 2) and not keep_best(tmp_path, 2), "it is there"
    best = tmp_path / BEST
    assert (best / "model.safetensors").samefile(first / "model.safetensors"), "it costs no room"
    finish_checkpoint(checkpoint(tmp_path, 4), keep=1)
    assert not first.exists() and is_whole(best)
    check_seal(best, needed=True)
    assert latest_checkpoint(tmp_path) == tmp_path / "checkpoint-4", "a run goes on from its last one"
    assert keep_best(tmp_path, 4) and (best / "model.safetensors").read_text() == "weights 4"
    assert not keep_best(tmp_path, 6), "there is none"


@pytest.mark.slow  # three runs of four updates
def test_a_run_measures_itself_and_trains_as_if_it_did_not(quick: list[str], tmp_path: Path):
    words = [*quick, f"output={tmp_path}", "train.updates=4", "train.save_updates=1", "train.keep_checkpoints=9"]
    asked = ["evaluate.every=3", "evaluate.questions=5", "evaluate.schema=gold", "evaluate.max_turn_tokens=8"]
    best = ["evaluate.every=1", *asked[1:], "evaluate.keep_best=true"]
    config = load_words([*words, *asked, "name=measured"])
    measured = run(config, console=Console(quiet=True)).folder
    plain = run(load_words([*words, "name=plain"]), console=Console(quiet=True)).folder
    assert metrics(measured) == metrics(plain), "nothing of the run depends on it"
    assert_same_tensors(*(folder / "checkpoint-4" / "model.safetensors" for folder in (measured, plain)))
    lines = read_held_out(measured)
    assert [each["update"] for each in lines] == [0, 3, 4], "before, every three, and after the last"
    corpus = open_corpus(config, config.evaluate.split)
    names = {corpus.question(index).question_id for index in choose_questions(corpus, 5, config.seed)}
    for each in lines:
        rows = pq.read_table(measured / FOLDER / f"{each['update']:06d}.parquet").to_pylist()
        assert {row["question_id"] for row in rows} == names and not any(row["gated"] for row in rows)
        assert each["equivalent"] == sum(row["tier"] == "equivalent" for row in rows) / len(rows)
    history = json.loads((measured / "checkpoint-4" / "trainer_state.json").read_text())["log_history"]
    assert [entry["step"] for entry in history if "eval_equivalent" in entry] == [0, 3, 4], "trackers get it"
    # Stopped after its third update, which was measured, and resumed from the second: measured again, to the same.
    for late in ("checkpoint-3", "checkpoint-4"):
        shutil.rmtree(measured / late)
    before = (measured / LINES).read_text()
    run(config, resume=True, console=Console(quiet=True))
    assert (measured / LINES).read_text() == before
    kept = load_words([*words, *best, "name=kept", "train.keep_checkpoints=1"])
    folder = run(kept, console=Console(quiet=True)).folder
    first = best_update(read_held_out(folder))
    state = json.loads((folder / BEST / "trainer_state.json").read_text())
    assert state["global_step"] == first and resolve_policy(folder / BEST) == folder / BEST
    assert any(str(folder / BEST) in told for told in next_lines(kept))
