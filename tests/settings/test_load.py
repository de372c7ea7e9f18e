"""Configuration: merging, overrides, errors that name thing, place and fix, saving, and what a resume may change."""

import dataclasses
import re
from pathlib import Path

import pytest

from sqale_grpo.settings.check import ConfigError, check_resume
from sqale_grpo.settings.docs import keys_markdown
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import flatten, known_keys, load_config, save_config

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "configs" / "demo.yaml"
RECIPE = ROOT / "configs" / "recipe.yaml"


def test_later_files_and_overrides_win(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("seed: 1\ntrain:\n  updates: 10\n  beta: 0.1\n")
    second.write_text("train:\n  updates: 20\n")
    config = load_config([first, second], ["train.learning_rate=2e-5", "corpus.difficulties=[simple]"])
    assert (config.seed, config.train.updates, config.train.beta) == (1, 20, 0.1)
    assert config.train.learning_rate == 2e-5
    assert config.corpus.difficulties == ["simple"]
    assert config.train.candidates == Config().train.candidates


def test_lists_are_replaced_whole() -> None:
    assert load_config([DEMO], ["train.log_to=[trackio]"]).train.log_to == ["trackio"]
    assert load_config([RECIPE], ["curriculum.start=[1,0,0,0]"]).curriculum.start == [1.0, 0.0, 0.0, 0.0]


def test_interpolation_is_resolved() -> None:
    assert load_config([DEMO], ["demo_policy.seed=${seed}", "seed=7"]).demo_policy.seed == 7


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.lerning_rate=1", ["train.lerning_rate", "did you mean 'train.learning_rate'?"]),
        ("updates=3", ["updates", "did you mean 'train.updates'?"]),
        ("seed.x=3", ["seed is one value, and there is no seed.x: write seed="]),
        ("nothing=3", ["nothing", "the sections are name, seed"]),
        ("train.zzz.a=3", ["train.zzz", "the keys of 'train' are threads, use_cpu, questions_per_update"]),
        ("train.max_steps=3", ["override 'train.max_steps=3': train.max_steps is now train.updates"]),
        ("evaluate.tables=gold", ["evaluate.tables is now evaluate.schema"]),
        ("policy.floor=0.2", ["policy is now demo_policy"]),
        ("train=3", ["'train' is a section of keys, not a value"]),
        ("train.updates=1.5", ["train.updates must be int, not 1.5"]),
        ("train.updates=null", ["train.updates must be int, not None"]),
        ("train.updates=0", ["train.updates must be at least 1, not 0"]),
        ("train.beta=nan", ["train.beta must be a finite number"]),
        ("train.learning_rate=0", ["train.learning_rate must be above 0"]),
        ("evaluate.top_p=1.1", ["evaluate.top_p must be at most 1"]),
        ("corpus.name=birdd", ["corpus.name must be one of sqale, bird"]),
        ("train.log_to=[wandb,paper]", ["train.log_to must be one of wandb, trackio, not 'paper'"]),
        ("curriculum.start=[1,2]", ["curriculum.start must be four shares that add up to 1"]),
        ("curriculum.end=[0.5,0.5,0.5,-0.5]", ["curriculum.end must be four shares"]),
        ("curriculum.percentiles=[50,40,95]", ["curriculum.percentiles must be three rising numbers"]),
        ("sampler.max_tables=2", ["sampler.max_tables (2) must not be under sampler.min_tables (4)"]),
        ("env.query_seconds=40", ["reward.gold_seconds (30) must not be under env.query_seconds (40)"]),
        ("rollout.max_episode_tokens=10", ["must be over rollout.max_turn_tokens"]),
        ("evaluate.schema=distractors", ["evaluate.schema must be gold, distractors:N, full or sampled"]),
        ("demo_policy.layers=lx", ["demo_policy.layers must be a word of the letters l and f"]),
        ("name=a/b", ["name must be a plain folder name"]),
        ("seed=${nope}", ["cannot be resolved", "nope"]),
        ("train.updates", ["has not the form section.key=value"]),
        ("=3", ["has not the form section.key=value"]),
        ("train.updates=[1", ["cannot be read"]),
    ],
)
def test_wrong_override_is_one_sentence(override: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        load_config([DEMO], [override])
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("train:\n  updatez: 3\n", ["unknown key 'train.updatez'", "did you mean 'train.updates'?"]),
        ("train:\n  max_steps: 3\n", ["train.max_steps is now train.updates"]),
        ("train:\n  updates: many\n", ["train.updates must be int, not 'many'"]),
        ("train:\n  updates: -1\n", ["train.updates must be at least 1"]),
        ("- 1\n", ["holds no mapping"]),
        ("a: [1\n", ["is no valid YAML"]),
        ("seed: 1\nseed: 2\n", ["is no valid YAML", "seed"]),
        ("train:\n", ["'train' is a section of keys"]),
    ],
)
def test_wrong_file_names_itself(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config([DEMO, path])
    for word in [str(path), *words]:
        assert word in str(error.value)


def test_missing_file_names_a_similar_one() -> None:
    with pytest.raises(ConfigError, match=r"recipee\.yaml, .*; did you mean .*recipe\.yaml\?"):
        load_config([ROOT / "configs" / "recipee.yaml"])


@pytest.mark.parametrize("word", ["recipe", "recipe.yaml", "configs/recipe.yaml", "./configs/recipe.yaml"])
def test_a_configuration_of_the_package_is_found_from_any_folder(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config([word]) == load_config([RECIPE])
    with pytest.raises(ConfigError, match="none of that name in the package; did you mean corpus/sqale"):
        load_config(["corpus/sqal"])


def test_a_file_wins_over_a_name_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe").write_text("name: mine\n")
    assert load_config(["recipe"]).name == "mine"


def test_saved_config_reads_back_equal(tmp_path: Path) -> None:
    config = load_config([RECIPE, ROOT / "configs" / "corpus" / "synsql.yaml"], ["name=x"])
    save_config(config, tmp_path / "config.yaml")
    assert load_config([tmp_path / "config.yaml"]) == config
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_resume_names_every_key_that_differs() -> None:
    saved = flatten(load_config([DEMO]))
    check_resume(
        saved, flatten(load_config([DEMO], ["train.keep_checkpoints=9", "train.micro_batch=2"])), "checkpoint-5"
    )
    changed = flatten(load_config([DEMO], ["train.updates=9", "sampler.max_tables=30"]))
    with pytest.raises(ConfigError) as error:
        check_resume(saved, changed, "checkpoint-5")
    text = str(error.value)
    assert text.startswith("checkpoint-5 belongs to another configuration")
    assert f"train.updates was {saved['train.updates']}, is 9" in text
    assert f"sampler.max_tables was {saved['sampler.max_tables']}, is 30" in text
    assert "another name=" in text and "keep_checkpoints" not in text


def test_every_key_states_its_source_and_meaning() -> None:
    from sqale_grpo.settings.sections import SOURCES

    for name, field in known_keys().items():
        assert field.metadata["source"] in SOURCES, name
        assert len(field.metadata["help"]) > 3, name


def test_counts_of_updates_are_shares_of_the_run() -> None:
    third = load_config(
        [RECIPE], ["train.updates=600", "curriculum.scale_to_run=true", "train.push_every=100", "train.push_repo=a/b"]
    )
    curriculum, train = third.curriculum, third.train
    assert (curriculum.warmup_updates, curriculum.ramp_updates, curriculum.gate_updates) == (133, 333, 27)
    assert (train.anchor_updates, train.save_updates, train.push_every) == (37, 17, 34)
    assert load_config([RECIPE], ["curriculum.scale_to_run=true"]) == load_config([RECIPE]), "1,800 is what they are of"
    none = load_config([RECIPE], ["train.updates=9", "curriculum.scale_to_run=true", "train.anchor_updates=0"])
    assert (none.train.anchor_updates, none.train.save_updates, none.curriculum.gate_updates) == (0, 1, 1)


def test_the_scaled_counts_are_what_a_run_keeps(tmp_path: Path) -> None:
    words = ["train.updates=600", "curriculum.scale_to_run=true"]
    config = load_config([RECIPE], words)
    save_config(config, tmp_path / "config.yaml")
    saved = load_config([tmp_path / "config.yaml"])
    assert saved == config
    check_resume(flatten(saved), flatten(load_config([RECIPE], words)), "checkpoint-5")


def test_a_run_can_be_extended_and_not_cut(tmp_path: Path) -> None:
    saved = flatten(load_config([RECIPE]))
    check_resume(saved, flatten(load_config([RECIPE], ["train.updates=2400"])), "checkpoint-1800")
    with pytest.raises(ConfigError, match="train.updates was 1800, is 900"):
        check_resume(saved, flatten(load_config([RECIPE], ["train.updates=900"])), "checkpoint-1800")
    with pytest.raises(ConfigError, match="curriculum.warmup_updates was 400, is 533"):
        longer = load_config([RECIPE], ["train.updates=2400", "curriculum.scale_to_run=true"])
        check_resume(saved, flatten(longer), "checkpoint-1800")


def test_recipe_names_every_key_that_is_a_fact_or_an_assumption() -> None:
    """Whatever the paper's run fixes stands in the recipe itself, so that a changed default cannot move it."""
    corpus_keys = {"corpus", "evaluate"}
    stated = load_stated(RECIPE) | load_stated(ROOT / "configs" / "corpus" / "sqale.yaml")
    wanted = {
        name
        for name, field in known_keys().items()
        if field.metadata["source"] != "ours" and name.partition(".")[0] not in corpus_keys
    }
    assert wanted - stated == set()


def load_stated(path: Path) -> set[str]:
    """The dotted keys that a file sets."""
    import yaml

    found = set()
    for section, value in yaml.safe_load(path.read_text()).items():
        found |= {f"{section}.{inner}" for inner in value} if isinstance(value, dict) else {section}
    return found


def test_every_line_of_the_recipe_cites_its_keys_source() -> None:
    section = ""
    for line in RECIPE.read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"(\w+):\s*(#.*)?$", line):
            section = heading[1]
        elif found := re.match(r"( *)(\w+): [^#]*?(#.*)?$", line):
            name = f"{section}.{found[2]}" if found[1] else found[2]
            sources = (known_keys()[name].metadata["source"], "card" if name == "model.lora_rank" else "")
            cited = (found[3] or "").strip("# ").partition(":")[0].split()
            assert name == "name" or cited[0].strip(",;:") in sources, line


def test_recipe_is_the_papers_run() -> None:
    train = load_config([RECIPE]).train
    assert train.questions_per_update * train.candidates == 144
    assert (train.updates, train.anchor_updates, train.learning_rate) == (1800, 111, 1e-5)
    assert (train.loss_type, train.loss_constant, train.scale_rewards) == ("dr_grpo", 1024, "none")


def test_reference_page_is_what_the_code_says() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == keys_markdown(), "run: sqale-grpo train --keys > docs/configuration.md"
    for name in known_keys():
        assert f"`{name}`" in page


def test_defaults_are_fresh_objects() -> None:
    first, second = Config(), Config()
    first.curriculum.start[0] = 0.9
    assert second.curriculum.start[0] == 0.4
    assert dataclasses.asdict(second) == dataclasses.asdict(load_config([]))
