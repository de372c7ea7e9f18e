"""The exported vision-language checkpoint in real vLLM, asked through its own ``sqale_agent.py``."""

import importlib.util
import json
import shutil
import sys

import pytest

from sqale_grpo.settings.seal import COMPLETE
from tests.export.test_export import make_run
from tests.helpers.checkpoints import tiny_vision_language
from tests.helpers.programs import program
from tests.vllm.taught import QUESTIONS, shop_database, taught_policy

main = program("export")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "shop.sqlite"
    shop_database(path)
    return path


@pytest.fixture(scope="module")
def export(tmp_path_factory, shop):
    """Export of a run over a vision-language base whose language model has learned the questions by heart."""
    work = tmp_path_factory.mktemp("work")
    _, checkpoint = make_run(work / "run", tiny_vision_language(work / "base"))
    taught = taught_policy(work / "taught", shop)
    for name in ("model.safetensors", "config.json"):
        shutil.copy(taught / name, checkpoint / name)
    (checkpoint / COMPLETE).touch()
    assert main([str(work / "run"), "--out", str(work / "export"), "--no-verify"]) == 0
    architectures = json.loads((work / "export" / "config.json").read_text())["architectures"]
    assert architectures == ["Qwen3_5ForConditionalGeneration"]
    return work / "export"


def agent(export):
    """The export's own file, imported: an engine in this process, where the CPU build's seams are in place."""
    spec = importlib.util.spec_from_file_location("sqale_agent", export / "sqale_agent.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["sqale_agent"] = module
    spec.loader.exec_module(module)
    return module


def test_vllm_loads_the_export_and_answers_questions_with_tools(export, shop, tmp_path, capfd):
    file = tmp_path / "questions.txt"
    file.write_text("\n".join(QUESTIONS))
    arguments = ["--model", str(export), "--db", str(shop), "--questions", str(file), "--temperature", "0.2"]
    short = ["--max-turn-tokens", "60", "--max-episode-tokens", "1024"]
    module = agent(export)
    assert module.main([*arguments, *short, "--trace"]) == 0
    shown = capfd.readouterr().out
    for question, sql in QUESTIONS.items():
        assert question in shown and sql in shown
    assert shown.count("by submit_sql after 2 turns, 2 calls") == len(QUESTIONS)
    assert "oslo" in shown and "rome" in shown
