"""What an evaluation takes from the run of its model: where it lies, and what its configuration does not say."""

from pathlib import Path

from sqale_grpo.settings.evaluation import load_evaluation, with_names
from sqale_grpo.settings.load import load_config, save_config
from sqale_grpo.settings.of_run import as_trained
from tests.conftest import ROOT

OWN = ROOT / "configs" / "own" / "cpu.yaml"
JSONL = ROOT / "configs" / "eval" / "jsonl.yaml"


def checkpoint(tmp_path: Path) -> Path:
    """A run's folder as training leaves it, without weights."""
    folder = tmp_path / "runs" / "mine" / "checkpoint-8"
    folder.mkdir(parents=True)
    config = load_config([OWN], ["corpus.source=my_data", "env.tool_turns=4", "name=mine", f"output={tmp_path}/runs"])
    save_config(config, folder.parent / "config.yaml")
    return folder


def test_an_evaluation_of_a_checkpoint_lies_in_its_run(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    config = load_evaluation([JSONL])
    assert with_names(config, folder).output == str(folder.parent / "evaluations")
    assert with_names(config, tmp_path / "exported").output == "runs/evaluations"
    assert with_names(config, "Qwen/Qwen3.5-2B").output == "runs/evaluations"
    asked = load_evaluation([JSONL], ["output=elsewhere"])
    assert with_names(asked, folder).output == "elsewhere"


def test_what_it_does_not_say_is_as_in_the_run(tmp_path: Path) -> None:
    usual = as_trained(checkpoint(tmp_path), "jsonl")
    config = load_evaluation([JSONL], [], usual)
    assert config.corpus.source == "my_data" and config.corpus.split == "test"
    assert config.env.prompts == "configs/prompts/demo.json" and config.env.tool_turns == 4
    assert (config.sampling.max_turn_tokens, config.sampling.max_episode_tokens) == (96, 1024)
    assert config.local.use_cpu and config.local.dtype == "float32"
    said = load_evaluation([JSONL], ["env.tool_turns=2", "corpus.source=other"], usual)
    assert said.env.tool_turns == 2 and said.corpus.source == "other"


def test_another_corpus_and_another_model_take_nothing(tmp_path: Path) -> None:
    assert as_trained(checkpoint(tmp_path), "bird") == {}
    assert as_trained(tmp_path / "exported", "jsonl") == {}
    assert as_trained("Qwen/Qwen3.5-2B", "jsonl") == {}
