"""Sweep files: the shipped one, W&B's reading of it, and every mistake in one sentence."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.load import load_words, save_config
from sqale_grpo.sweep.file import read_sweep
from sqale_grpo.sweep.state import check_folders, standing
from tests.conftest import ROOT

# Values that a shell, YAML or a file system might take otherwise.
ODD = {
    "corpus.prepared": {"values": ["a b, c", 'it\'s "q"', "x" * 300, "y" * 300]},
    "corpus.difficulties": {"values": [[], ["simple", "hard"]]},
    "reward.partial_credit": {"values": [True, False]},
    "train.learning_rate": {"values": [1e-5, "1e-6"]},
    "seed": {"value": 5},
}
SHIPPED = sorted((ROOT / "configs" / "sweep").glob("*.yaml"))


@pytest.fixture(autouse=True)
def in_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweep files name configuration files from the project's root."""
    monkeypatch.chdir(ROOT)


def sweep_file(folder: Path, parameters: dict, **more: object) -> Path:
    content = {
        "program": "sqale_grpo.train",
        "method": "grid",
        "command": ["${env}", "${interpreter}", "-m", "${program}", "configs/demo.yaml", "${args_no_hyphens}"],
        "parameters": parameters,
        **more,
    }
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_the_corpora_sweep_is_one_recipe_on_three_corpora():
    runs = read_sweep(ROOT / "configs" / "sweep" / "corpora.yaml")
    assert [(run.config.corpus.name, run.config.seed) for run in runs] == [
        (corpus, seed) for corpus in ("sqale", "bird", "synsql") for seed in (42, 43, 44)
    ]
    assert runs[4].name == "bird-seed43" and runs[4].folder == Path("runs/bird-seed43")
    assert {run.config.curriculum.strength for run in runs} == {1.0, 0.0, 0.5}
    assert all(run.config.train.updates == 1_800 and not run.config.train.log_to for run in runs)


@pytest.mark.parametrize("path", [*SHIPPED, None], ids=lambda path: path.name if path else "odd values")
def test_wandb_starts_the_same_runs(path, tmp_path):
    """The command that the agent of the installed W&B makes of each combination is that of the run."""
    utils = pytest.importorskip("wandb.sdk.launch.sweeps.utils")
    path = path or sweep_file(tmp_path, ODD)
    runs, sweep = read_sweep(path), utils.load_sweep_config(str(path))
    fixed = {name: choice["value"] for name, choice in sweep["parameters"].items() if "value" in choice}
    for run in runs:
        values = {name: {"value": value} for name, value in {**run.parameters, **fixed}.items()}
        given = utils.create_sweep_command_args({"args": values})
        given |= {"env": ["/usr/bin/env"], "interpreter": [sys.executable], "program": [sweep["program"]]}
        command: list[str] = []
        for word in utils.create_sweep_command(list(sweep["command"])):
            macro = str(word).startswith("${") and str(word).endswith("}")
            command += given[word[2:-1]] if macro else [str(word)]
        config = load_words(command[command.index("sqale_grpo.train") + 1 :])
        config.train.log_to = []  # what running without W&B leaves out
        if sweep["parameters"] == ODD:
            config.name = run.name  # without name: W&B's agent names no run
        assert config == run.config


def test_a_run_is_named_by_what_varies(tmp_path):
    path = sweep_file(
        tmp_path,
        {"config": {"values": ["configs/corpus/bird.yaml"]}, "seed": {"values": [1, 2]}, "train.beta": {"value": 0.1}},
    )
    runs = read_sweep(path, ["train.log_to=[trackio]", "output=elsewhere"])
    assert [str(run.folder) for run in runs] == ["elsewhere/seed1", "elsewhere/seed2"]
    assert runs[0].parameters == {"seed": 1}
    assert runs[0].config.train.log_to == ["trackio"] and runs[0].config.train.beta == 0.1
    path = sweep_file(
        tmp_path,
        {"config": {"values": ["configs/corpus/bird.yaml", "configs/corpus/sqale.yaml"]}, "seed": {"value": 1}},
    )
    assert [run.name for run in read_sweep(path)] == ["bird", "sqale"]


def test_odd_values_arrive_as_they_are(tmp_path):
    runs = read_sweep(sweep_file(tmp_path, ODD))
    assert {run.config.corpus.prepared for run in runs} == set(ODD["corpus.prepared"]["values"])
    assert {run.config.train.learning_rate for run in runs} == {1e-5, 1e-6}
    assert len({run.name for run in runs}) == len(runs) == 32
    for run in runs:
        assert run.config.corpus.difficulties == run.parameters["corpus.difficulties"]
        assert run.config.reward.partial_credit is run.parameters["reward.partial_credit"]
        assert len(run.name) < 200


def test_an_override_of_what_varies_is_refused(tmp_path):
    """Runs of one seed under the names of three would be averaged as three."""
    path = sweep_file(tmp_path, {"seed": {"values": [1, 2, 3]}, "train.beta": {"value": 0.1}})
    with pytest.raises(ConfigError, match=r"varies seed, and the override 'seed=5' would make its runs the same"):
        read_sweep(path, ["seed=5"])
    assert {run.config.train.beta for run in read_sweep(path, ["train.beta=0.2"])} == {0.2}


def test_the_command_names_its_trackers_once():
    for path in SHIPPED:
        words = read_sweep(path)[0].command
        assert [word for word in words if word.startswith("train.log_to")] == ["train.log_to=[]"]


@pytest.mark.parametrize(
    ("parameters", "more", "says"),
    [
        ({"config": {"values": ["configs/corpus/brid.yaml"]}}, {}, "did you mean configs/corpus/bird.yaml"),
        ({"corpus.name": {"values": ["webtables"]}}, {}, "corpus.name must be one of sqale, bird"),
        ({"train.learning_rat": {"values": [1]}}, {}, "did you mean 'train.learning_rate'"),
        ({"seed": {"min": 1, "max": 3}}, {}, "parameter 'seed' must have value: or values:"),
        ({"seed": {"values": []}}, {}, "parameter 'seed' must have a value"),
        ({"corpus.limit": {"values": [None, 5]}}, {}, "W&B hands on null as the text None"),
        ({"seed": {"values": [1]}}, {"method": "bayes"}, "only grid is run without W&B"),
        ({"seed": {"values": [1]}}, {"ablations": {}}, "unknown key 'ablations'"),
        ({"seed": {"values": [1]}}, {"command": ["${program}", "${args_no_hyphens}"]}, "-m sqale_grpo.train"),
        ({"seed": {"values": [1]}}, {"command": ["-m", "sqale_grpo.train", "${args}"]}, "no ${args_no_hyphens}"),
        ({"seed": {"values": [1]}}, {"command": ["${args_json}", "${args_no_hyphens}"]}, "command has ${args_json}"),
        ({"seed": {"values": [1, 2]}, "name": {"value": "one"}}, {}, "would share the folder runs/one"),
        ({"seed": {"values": [1]}}, {"method": "random"}, "only grid is run without W&B"),
        ({5: {"values": [1]}}, {}, "the parameter 5 is no name"),
        (
            {"seed": {"values": [1]}},
            {"command": "-m sqale_grpo.train ${args_no_hyphens}"},
            "command must be a list of words",
        ),
        ({"name": {"values": ["x" * 300]}}, {}, "name must be a plain folder name"),
        ({"config": {"values": ["x" * 300]}}, {}, "no config file at xxx"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(tmp_path, parameters, more, says):
    with pytest.raises(ConfigError) as caught:
        read_sweep(sweep_file(tmp_path, parameters, **more))
    assert says in str(caught.value) and str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_of_another_configuration_is_refused_before_anything_starts(tmp_path):
    path = sweep_file(tmp_path, {"seed": {"values": [1, 2]}})
    runs = read_sweep(path, [f"output={tmp_path}"])
    assert [standing(run).state for run in runs] == ["new", "new"]
    other = load_words(["configs/demo.yaml", "train.beta=0.5", "seed=2", "name=seed2", f"output={tmp_path}"])
    runs[1].folder.mkdir()
    save_config(other, runs[1].folder / "config.yaml")
    with pytest.raises(ConfigError, match=r"run seed2: .*train.beta was 0.5, is 0.005"):
        check_folders(runs)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["configs/sweep/nothing.yaml"], "no sweep file at configs/sweep/nothing.yaml; there are"),
        (["configs/sweep/corpora.yaml", "extras=true"], "no block of runs at configs/sweep/corpora_extras.yaml"),
        (["configs/sweep/corpora.yaml", "seeds=3"], "unknown key 'seeds'; did you mean 'seed'?"),
        (["seed=3"], "no sweep file given"),
    ],
)
def test_the_program_says_what_is_wrong(arguments, says):
    program = [sys.executable, "-m", "sqale_grpo.sweep", *arguments, "--dry-run"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_dry_run_prints_commands_that_a_shell_takes(tmp_path):
    program = [sys.executable, "-m", "sqale_grpo.sweep", "configs/sweep/corpora.yaml"]
    program += [f"output={tmp_path}", "--dry-run"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    commands = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert len(commands) == 9 and not list(tmp_path.iterdir())
    plan = subprocess.run(
        f"{commands[5]} --dry-run", shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert "run bird-seed44" in plan.stdout
