"""Exports of runs: what is in the folder, that untrained tensors are the original's bytes, that others load it."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen3_5ForConditionalGeneration

from sqale_grpo.env.prompts import load_prompts
from sqale_grpo.export.card import write_card
from sqale_grpo.export.curves import draw, means
from sqale_grpo.export.folder import name_left, run_settings
from sqale_grpo.export.verify import verify
from sqale_grpo.export.weights import WeightsReport
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.load import load_config, save_config
from sqale_grpo.settings.run_folder import CONFIG
from sqale_grpo.settings.seal import COMPLETE
from tests.conftest import ROOT
from tests.helpers.checkpoints import tiny_text_only, tiny_vision_language
from tests.helpers.programs import program

main = program("export")

PROMPTS = "configs/prompts/demo.json"


def make_run(folder, base, *overrides):
    """A run's folder over ``base`` without a checkpoint in it yet."""
    config = load_config([ROOT / "configs" / "demo.yaml"], [f"model.path={base}", "name=ada", *overrides])
    checkpoint = folder / "checkpoint-12"
    checkpoint.mkdir(parents=True)
    save_config(config, folder / CONFIG)
    lines = [
        {"update": n, "reward": n / 10, "equivalent_rate": n / 20, "executable_rate": 0.3, "parsable_rate": 0.1}
        | {"invalid_rate": 0.1, "rounds": 4.0, "tool_calls": 3.0 + n}
        for n in range(12)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return config, checkpoint


def train_a_little(model, checkpoint, tokenizer_from):
    """Move what a run moves, and save as the trainer does."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "visual" not in name:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    model.save_pretrained(checkpoint)
    (checkpoint / COMPLETE).touch()


@pytest.fixture(scope="module")
def vision_run(tmp_path_factory):
    """(base, run): a tiny vision-language policy with ``mtp.*`` tensors, and a run over it."""
    work = tmp_path_factory.mktemp("vision")
    base = tiny_vision_language(work / "base")
    _, checkpoint = make_run(work / "run", base)
    train_a_little(Qwen3_5ForConditionalGeneration.from_pretrained(base, dtype=torch.float32), checkpoint, base)
    return base, work / "run"


@pytest.fixture(scope="module")
def exported(vision_run, tmp_path_factory):
    """The export of that run, verified as a user's is."""
    base, run = vision_run
    folder = run / "evaluations" / "after"
    folder.mkdir(parents=True)
    summary = {
        **{"benchmark": "bird", "corpus": "bird", "split": "dev", "schema": "distractors:32", "temperature": 0.6},
        "n": 300,
        "model": str(run / "checkpoint-12"),
        "equivalent": 0.523,
        "calls": 6.3,
        "identity": "3fa9c1d20b77",
        "missing_share": 0.125,
        "intervals": {"equivalent": [0.466, 0.579]},
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "calibration.json").write_text('{"threshold": 0.625}')
    before = run / "evaluations" / "start"
    before.mkdir()
    rate = {"value": 0.5, "low": 0.4, "high": 0.6, "n": 50}
    votes = {"threshold": 0.5, "candidates": 8, "held_out": {"answered": rate, "accuracy": {**rate, "value": 0.55}}}
    own = {"model": str(base), "equivalent": 0.25, "candidates": 8, "calibration": votes}
    (before / "summary.json").write_text(json.dumps({**summary, **own, "missing_share": 0.0}))
    other = run / "evaluations" / "of-another-checkpoint"
    other.mkdir()
    (other / "summary.json").write_text(json.dumps({"n": 900, "model": str(run / "checkpoint-6")}))
    (other / "calibration.json").write_text('{"threshold": 0.125}')
    out = tmp_path_factory.mktemp("exports") / "ada"
    done = subprocess.run(
        [sys.executable, "-m", "sqale_grpo.export", str(run), "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "verified: loaded, and one episode played" in done.stdout
    return out


@pytest.mark.long
def test_names_and_shapes_are_the_originals_and_only_the_language_model_differs(vision_run, exported):
    old, new = (load_file(folder / "model.safetensors") for folder in (vision_run[0], exported))
    assert list(old) == list(new)
    kept = [name for name in old if ".visual." in name or name.startswith("mtp.")]
    assert any(name.startswith("mtp.") for name in kept) and any(".visual." in name for name in kept)
    for name, tensor in old.items():
        assert new[name].shape == tensor.shape and new[name].dtype == tensor.dtype, name
        assert torch.equal(new[name].view(torch.uint8), tensor.view(torch.uint8)) == (name in kept), name


def test_the_calibrated_share_of_agreement_is_that_of_the_checkpoint(exported):
    assert json.loads((exported / "calibration.json").read_text()) == {"threshold": 0.625}
    text = (exported / "sqale_agent.py").read_text()
    assert "sure=0.625)" in text and "frame=TextFrame(before_system='<|im_start|>system\\n'" in text


def test_the_trained_weights_are_the_checkpoints_rounded(vision_run, exported):
    trained, new = (load_file(folder / "model.safetensors") for folder in (vision_run[1] / "checkpoint-12", exported))
    language = [name for name in trained if ".visual." not in name and name in new]
    assert len(language) > 40
    for name in language:
        assert torch.equal(new[name], trained[name].to(new[name].dtype)), name


def test_transformers_loads_it_as_its_own_class_without_a_missing_tensor(exported):
    _, info = Qwen3_5ForConditionalGeneration.from_pretrained(exported, output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"]
    AutoModelForCausalLM.from_pretrained(exported)


def test_the_folder_holds_all_that_its_user_needs(vision_run, exported):
    names = {path.name for path in exported.iterdir()}
    assert {"README.md", "LICENSE", "curves.svg", "sqale_agent.py", "prompts.json", "training_config.yaml"} <= names
    assert {"config.json", "tokenizer.json", "preprocessor_config.json", "chat_template.jinja"} <= names
    for name in ("config.json", "tokenizer.json", "preprocessor_config.json", "chat_template.jinja"):
        assert (exported / name).read_bytes() == (vision_run[0] / name).read_bytes()
    generation = json.loads((exported / "generation_config.json").read_text())
    vocabulary = json.loads((exported / "tokenizer.json").read_text())["added_tokens"]
    ids = {token["content"]: token["id"] for token in vocabulary}
    assert generation["eos_token_id"] == [ids["<|im_end|>"], ids["<|endoftext|>"]]
    assert (generation["temperature"], generation["top_p"], generation["top_k"]) == (0.6, 0.95, 20)
    assert generation["do_sample"] is True
    assert load_prompts(exported / "prompts.json") == load_prompts(ROOT / PROMPTS)
    assert load_config([exported / "training_config.yaml"]).name == "ada"


def test_the_card_is_made_from_the_run(vision_run, exported):
    card = (exported / "README.md").read_text()
    assert card.startswith("---\nlicense: apache-2.0\n") and "\n# ada\n" in card
    for part in (
        "12 updates",
        "52.3% (46.6% to 57.9%)",
        "| after | checkpoint-12 | bird, dev | gold and 32 more | 0.6 | 1 | 300 (§ 12.5% missing) | 52.3%",
        "| start | base | bird, dev | gold and 32 more | 0.6 | 8 | 300 | 25.0%",
        "| start | 50% of 8 | 50.0% (40.0% to 60.0%) | 55.0% (40.0% to 60.0%) |",
        "| 3fa9c1d20b77 |",
        "curves.svg",
        "wolff2026sqale",
        "0.0005",
    ):
        assert part in card, part
    assert card.index("| start |") < card.index("| of-another-checkpoint |") < card.index("| after |"), "by updates"
    assert f"| torch | {torch.__version__} |" in card and "Framework versions" in card
    assert "base_model" not in card, "a folder of this machine has no name on the Hub"
    assert str(vision_run[0].parent) not in card, "a path of this machine"
    assert (exported / "curves.svg").read_text().count("<polyline") == 5


def test_the_hub_reads_the_exported_checkpoints_results(exported):
    data = ModelCard.load(exported / "README.md").data
    (result,) = data.eval_results
    assert (result.dataset_type, result.dataset_split, result.metric_value) == ("bird", "dev", 52.3)
    assert result.dataset_name == "bird, dev, gold and 32 more, temperature 0.6, candidates 1"
    assert "95% interval 46.6 to 57.9" in result.metric_name


def test_a_base_and_a_corpus_of_the_hub_are_linked(tmp_path):
    config = load_config([ROOT / "configs" / "recipe.yaml", ROOT / "configs" / "corpus" / "sqale.yaml"])
    report = WeightsReport(1, 0, 10, 10, [])
    write_card(tmp_path, tmp_path / "run", tmp_path / "run" / "checkpoint-3", config, report)
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.base_model == "Qwen/Qwen3.5-2B"
    assert card.data.datasets == ["trl-lab/SQaLe-2-text-to-SQL-Queries", "trl-lab/SQaLe-2-text-to-SQL-Schemas"]
    assert "[`Qwen/Qwen3.5-2B`](https://huggingface.co/Qwen/Qwen3.5-2B)" in card.text
    assert card.data.eval_results is None and "## Evaluation" not in card.text


def test_what_stopped_exports_left_is_named_and_the_own_removed(tmp_path):
    said: list[str] = []
    for name in ("ada", "other"):
        (tmp_path / f"{name}.partial" / "deep").mkdir(parents=True)
        (tmp_path / f"{name}.partial" / "deep" / "model.safetensors").write_bytes(bytes(2_000_000))
    name_left(tmp_path / "ada", said.append)
    assert said[0] == f"removed {tmp_path / 'ada.partial'}, 2.0 MB, which an export left that was stopped"
    assert said[1].startswith(f"{tmp_path / 'other.partial'}, 2.0 MB, is left of an export") and len(said) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["other.partial"]


def test_every_file_can_be_read_as_the_umask_says(exported):
    mask = os.umask(0)
    os.umask(mask)
    for file in exported.rglob("*"):
        assert file.stat().st_mode & 0o444 == 0o444 & ~mask, file


@pytest.mark.long
def test_an_export_that_lacks_a_tensor_is_not_verified(exported, tmp_path):
    shutil.copytree(exported, tmp_path / "cut")
    tensors = load_file(exported / "model.safetensors")
    name = next(name for name in tensors if name.endswith("q_proj.weight") and not name.startswith("mtp."))
    del tensors[name]
    save_file(tensors, tmp_path / "cut" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=f"its agent does not run: error: .* lack .*{name.partition('layers')[2]}"):
        verify(tmp_path / "cut", print)


def test_only_the_export_of_this_checkpoint_is_pushed_as_it_is(vision_run, exported, tmp_path, capsys):
    run = vision_run[1]
    asked = ["--out", str(exported), "--push", "ada/shop", "--dry-run"]
    assert main([str(run), *asked]) == 0
    assert "would upload" in capsys.readouterr().out
    make_run(tmp_path / "other", vision_run[0], "seed=9")
    shutil.copytree(run / "checkpoint-12", tmp_path / "other" / "checkpoint-12", dirs_exist_ok=True)
    shutil.copytree(run, tmp_path / "later")
    (tmp_path / "later" / "checkpoint-12").rename(tmp_path / "later" / "checkpoint-13")
    for path in (tmp_path / "other", tmp_path / "later"):
        assert main([str(path), *asked]) == 2
        shown = capsys.readouterr()
        assert "holds another export" in shown.err and not shown.out


def test_trained_tensors_in_float32_are_loaded_as_such(vision_run, tmp_path):
    base, run = vision_run
    assert main([str(run), "--out", str(tmp_path / "out"), "--no-verify", "--dtype", "float32"]) == 0
    trained = load_file(run / "checkpoint-12" / "model.safetensors")
    loaded = Qwen3_5ForConditionalGeneration.from_pretrained(tmp_path / "out").state_dict()
    name = "model.language_model.norm.weight"
    assert torch.equal(loaded[name], trained[name]) and loaded[name].dtype == torch.float32


def test_a_text_only_policy_is_exported_as_it_is(tmp_path):
    base = tiny_text_only(tmp_path / "base")
    _, checkpoint = make_run(tmp_path / "run", base)
    train_a_little(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), checkpoint, base)
    assert main([str(checkpoint), "--out", str(tmp_path / "out"), "--no-verify", "--dtype", "float32"]) == 0
    trained, new = (load_file(folder / "model.safetensors") for folder in (checkpoint, tmp_path / "out"))
    assert all(torch.equal(trained[name], new[name]) for name in new)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["architectures"] == ["Qwen3_5ForCausalLM"]


def test_a_text_only_checkpoint_goes_back_into_a_vision_language_policy(vision_run, tmp_path):
    """As of a run that loaded the base by AutoModelForCausalLM."""
    base, _ = vision_run
    _, checkpoint = make_run(tmp_path / "run", base)
    train_a_little(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), checkpoint, base)
    assert main([str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--no-verify"]) == 0
    old, new = (load_file(folder / "model.safetensors") for folder in (base, tmp_path / "out"))
    assert list(old) == list(new)
    assert not torch.equal(old["model.language_model.norm.weight"], new["model.language_model.norm.weight"])


def test_adapters_are_merged(vision_run, tmp_path):
    from peft import LoraConfig, get_peft_model

    base, _ = vision_run
    _, checkpoint = make_run(tmp_path / "run", base, "model.lora_rank=4")
    model = get_peft_model(
        Qwen3_5ForConditionalGeneration.from_pretrained(base, dtype=torch.float32),
        LoraConfig(r=4, target_modules=["q_proj", "in_proj_qkv", "down_proj"], exclude_modules=".*visual.*"),
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.2)
    model.save_pretrained(checkpoint)
    (checkpoint / COMPLETE).touch()
    assert main([str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--no-verify"]) == 0
    old, new = (load_file(folder / "model.safetensors") for folder in (base, tmp_path / "out"))
    assert list(old) == list(new)
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    assert changed and all(
        name.rpartition(".weight")[0].endswith(("q_proj", "in_proj_qkv", "down_proj")) for name in changed
    )
    assert not any(".visual." in name or name.startswith("mtp.") for name in changed)


# What cannot be exported


def test_what_cannot_be_exported_is_one_sentence_and_leaves_no_folder(vision_run, tmp_path, capsys):
    base, run = vision_run

    def refused(*arguments):
        assert main([*map(str, arguments), "--no-verify"]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and not (tmp_path / "out").exists()
        return error

    out = ("--out", tmp_path / "out")
    assert "there is no folder" in refused(tmp_path / "gone", *out)
    assert "exists already" in refused(run, "--out", run)
    assert "belong to --push" in refused(run, *out, "--dry-run")
    assert "belongs to no run" in refused(base, *out)
    broken = tmp_path / "broken"
    shutil.copytree(run, broken)
    (broken / "checkpoint-12" / COMPLETE).unlink()
    assert "no complete checkpoint" in refused(broken, *out)
    (broken / "checkpoint-12" / COMPLETE).touch()
    file = broken / "checkpoint-12" / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    assert "model.safetensors is damaged" in refused(broken, *out)
    file.write_bytes(whole)
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("norm.weight") and ".visual." not in name)
    save_file({**tensors, name: torch.full_like(tensors[name], float("nan"))}, file, metadata={"format": "pt"})
    assert "not finite" in refused(broken, *out) and name
    save_file({**tensors, name: tensors[name][:-1].clone()}, file, metadata={"format": "pt"})
    assert "has shape" in refused(broken, *out)
    save_file({other: tensor for other, tensor in tensors.items() if other != name}, file, metadata={"format": "pt"})
    assert f"lacks the tensor {name}" in refused(broken, *out)
    save_file({**tensors, "model.extra": torch.ones(1)}, file, metadata={"format": "pt"})
    assert "model.extra" in refused(broken, *out)


def test_a_base_that_is_not_at_hand_is_named(tmp_path, capsys):
    _, checkpoint = make_run(tmp_path / "run", "nobody/no-such-model")
    tiny_text_only(checkpoint)
    (checkpoint / COMPLETE).touch()
    assert main([str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 2
    assert "nobody/no-such-model is neither a folder nor at hand" in capsys.readouterr().err


def test_the_agents_settings_are_the_runs():
    settings = run_settings(load_config([ROOT / "configs" / "demo.yaml"], ["env.tool_turns=3", "evaluate.top_k=7"]))
    assert settings.episode.tool_turns == 3
    assert (settings.sampling.top_k, settings.sampling.max_turn_tokens, settings.query.seconds) == (7, 96, 30)


def test_curves_are_means_and_one_update_is_drawn_too():
    assert means(range(6), 2) == [1.0, 4.0]
    rates = dict.fromkeys(("equivalent_rate", "executable_rate", "parsable_rate", "invalid_rate"), 0.25)
    assert "NaN" not in draw([{**rates, "tool_calls": 0.0}])
