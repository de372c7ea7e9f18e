"""The demo program's own parts: which folder it takes, and what it keeps."""

import dataclasses
import importlib.util
import json

from rich.console import Console

from tests.conftest import ROOT
from train.config import Config
from train.config_load import save_config

spec = importlib.util.spec_from_file_location("demo_script", ROOT / "scripts" / "demo.py")
demo = importlib.util.module_from_spec(spec)
spec.loader.exec_module(demo)


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


def test_a_stored_value_is_made_once(tmp_path):
    made = []
    for _ in range(2):
        value = demo.stored(tmp_path / "x.json", lambda: made.append(1) or {"a": 1})
    assert value == {"a": 1} and len(made) == 1


def test_the_table_shows_both_sides_and_the_interval():
    side = {
        "n": 200,
        "equivalent": 0.25,
        "executable": 0.25,
        "parsable": 0.25,
        "invalid": 0.25,
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
