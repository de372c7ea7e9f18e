"""What a run shows: one line an update, and a file of metrics that a resume takes up."""

import json
from pathlib import Path

from rich.console import Console
from transformers import TrainerControl, TrainerState, TrainingArguments

from sqale_grpo.rollout.record import read_metrics
from sqale_grpo.train.progress import ProgressLog, drop_lines, logged_updates

RATES = {"equivalent_rate": 0.5, "executable_rate": 0.25, "parsable_rate": 0.25, "invalid_rate": 0.0}
LOGS = {**RATES, "reward": 1.5, "tool_calls": 4.0, "gate_rate": 1.0, "kl": 0.01, "seconds/update": 2.0}


def updates(file: Path) -> list[int]:
    return [json.loads(line)["update"] for line in file.read_text().splitlines()]


def test_lines_from_the_resume_on_and_a_half_line_are_dropped(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    assert logged_updates(tmp_path) == 0
    drop_lines(file, 0)
    assert file.read_text() == "" and logged_updates(tmp_path) == 0
    file.write_text("".join(json.dumps({"update": n}) + "\n" for n in range(5)) + '{"upda')
    assert logged_updates(tmp_path) == 5
    drop_lines(file, 3)
    assert updates(file) == [0, 1, 2] and logged_updates(tmp_path) == 3
    file.write_text('{"update": 0}\n{"upda')
    drop_lines(file, 3)
    assert updates(file) == [0]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_every_reader_of_the_metrics_leaves_out_the_same_lines(tmp_path: Path) -> None:
    """The report, the export's card, a sweep and a resume read one file: a cut line in its middle is no end."""
    file = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"update": n, **LOGS}) for n in (0, 1, 2)]
    file.write_text(f"{lines[0]}\n{lines[1][:30]}\n{lines[2]}\n{lines[1][:50]}")
    found, notes = read_metrics(file)
    assert [line["update"] for line in found] == [0, 2] and len(notes) == 2
    assert logged_updates(tmp_path) == 3
    drop_lines(file, 3)
    assert file.read_text() == f"{lines[0]}\n{lines[2]}\n"


def test_an_update_is_a_line_in_the_file_and_on_a_terminal_a_bar_with_the_four_rates(tmp_path: Path) -> None:
    console = Console(record=True, width=80, force_terminal=True, file=(tmp_path / "screen").open("w"))
    log = ProgressLog(tmp_path, console)
    args = TrainingArguments(output_dir=str(tmp_path), max_steps=1800, report_to="none", use_cpu=True)
    state, control = TrainerState(global_step=1_233, is_world_process_zero=True), TrainerControl()
    (tmp_path / "episodes").mkdir()
    for update in (0, 1_232, 1_233, 1_240):
        (tmp_path / "episodes" / f"{update:06d}.parquet").touch()
    log.on_train_begin(args, state, control)
    left = sorted(path.stem for path in (tmp_path / "episodes").iterdir())
    assert left == ["000000", "001232"], "what is about to be played again is gone"
    state.global_step = 1_234
    log.on_log(args, state, control, logs=dict(LOGS))
    log.on_log(args, state, control, logs={"train_runtime": 3.0})  # the summary at the end is no update
    log.bar.refresh()
    log.on_train_end(args, state, control)
    assert updates(tmp_path / "metrics.jsonl") == [1_233]
    text = console.export_text()
    assert (
        "update 1233  reward 1.50  equivalent 50% executable 25% parsable 25% invalid 0%  calls 4.0  gate 100%" in text
    )
    bar = next(line for line in text.splitlines() if "1234/1800" in line)
    assert bar.rstrip().endswith("equivalent 50% executable 25% parsable 25% invalid 0%")
