"""The demo program's own parts: which folder it takes, and what it keeps."""

import dataclasses
import json

from rich.console import Console

from sqale_grpo.demo import command as demo
from sqale_grpo.settings.evaluation import check_evaluation, evaluation_folder, load_evaluation
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import flatten, load_config, save_config
from sqale_grpo.settings.of_run import run_evaluation_config
from tests.conftest import ROOT


def test_a_demo_that_was_stopped_is_taken_up_and_a_finished_one_left_alone(tmp_path):
    config = dataclasses.replace(Config(), name="demo", seed=3, output=str(tmp_path))
    assert demo.choose_folder(config) == (dataclasses.replace(config, name="demo-seed3"), False)
    folder = tmp_path / "demo-seed3"
    folder.mkdir()
    save_config(dataclasses.replace(config, name="demo-seed3"), folder / demo.CONFIG)
    assert demo.choose_folder(config) == (dataclasses.replace(config, name="demo-seed3"), True)
    (folder / demo.SUMMARY).touch()
    assert demo.choose_folder(config) == (dataclasses.replace(config, name="demo-seed3-2"), False)


def test_a_demo_of_other_settings_is_not_taken_up(tmp_path):
    """Its questions before training would be compared with others after it."""
    config = dataclasses.replace(Config(), name="demo", seed=3, output=str(tmp_path))
    folder = tmp_path / "demo-seed3"
    folder.mkdir()
    save_config(dataclasses.replace(config, name="demo-seed3"), folder / demo.CONFIG)
    other = dataclasses.replace(config, evaluate=dataclasses.replace(config.evaluate, questions=7))
    assert demo.choose_folder(other) == (dataclasses.replace(other, name="demo-seed3-2"), False)
    (folder / demo.CONFIG).write_text("train:\n  gone_key: 1\n")
    assert demo.choose_folder(config) == (dataclasses.replace(config, name="demo-seed3-2"), False)


def test_the_two_evaluations_are_those_that_the_configuration_asks_for(tmp_path):
    config = load_config([ROOT / "configs" / "demo.yaml"], [f"output={tmp_path}", "seed=3", "name=demo-seed3"])
    before, after = (run_evaluation_config(config, name, model) for name, model in (("before", "a"), ("after", "b")))
    assert evaluation_folder(before) == tmp_path / "demo-seed3" / "evaluations" / "before"
    same = {"name": "before", "group": "before", "model": "a"}
    assert dataclasses.replace(after, **same) == before
    for asked in (before, after):
        check_evaluation(asked)
        assert (asked.seed, asked.questions, asked.schema, asked.env.query_seconds) == (3, 200, "sampled", 30.0)
        assert (asked.local.dtype, asked.local.use_cpu, asked.sampling.max_turn_tokens) == ("float32", True, 96)
    # The shipped configuration of the demo's evaluation alone asks for the same, of seed 1.
    shipped = flatten(load_evaluation([ROOT / "configs" / "eval" / "demo.yaml"], ["seed=3"]))
    differ = {name for name, value in flatten(before).items() if shipped[name] != value}
    assert differ == {"name", "group", "model", "output"}


def test_the_table_shows_both_sides_and_the_interval():
    side = {
        "n": 200,
        "equivalent": 0.25,
        "executable": 0.25,
        "parsable": 0.25,
        "invalid": 0.25,
        "robust": None,
        "reward": 1.5,
        "table_recall": 0.5,
        "literals_seen": None,
        "unstated_literals_seen": 0.5,
        "rounds": 5.0,
        "calls": 5.0,
        "ended_by": {"submit_sql": 1.0},
    }
    after = {**side, "equivalent": 0.75, "ended_by": {"final_turn": 1.0}}
    summary = {"before": side, "after": after, "difference": 0.5, "interval": [0.4, 0.6], "seed": 3}
    console = Console(record=True, width=120)
    demo.show(console, {**summary, "seconds": {"total": 9.0}})
    text = console.export_text()
    for shown in ("25.0%", "75.0%", "+50.0%", "+40.0% to +60.0%", "ended by final_turn", "–", "200 questions"):
        assert shown in text
    json.dumps(summary)
