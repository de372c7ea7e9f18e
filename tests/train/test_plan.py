"""The plan of a run: shapes, schedules, anchors, memory, and the command line up to where a model is loaded."""

import subprocess
import sys
from pathlib import Path

import pytest

from sqale_grpo.rollout.demo_policy import demo_policy_folder
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.load import load_config
from sqale_grpo.settings.shape import accumulation, batch_shape, check_corpus_size
from sqale_grpo.train.memory import CARDS, GIB, checkpoint_bytes, memory_parts, peak, smallest_card
from sqale_grpo.train.model_shape import QWEN35_2B, model_shape
from sqale_grpo.train.plan import anchors, learning_rate, plan_warnings, turning_points, warmup_steps
from tests.helpers.programs import program

main = program("train")

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "configs" / "recipe.yaml"
SQALE = ROOT / "configs" / "corpus" / "sqale.yaml"
DEMO = ROOT / "configs" / "demo.yaml"


@pytest.mark.parametrize("micro_batch", [1, 2, 4, 16, 500])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 6, 8, 9])
def test_every_pass_of_every_rank_adds_up_to_the_batch(world_size: int, micro_batch: int) -> None:
    config = load_config([RECIPE], [f"train.micro_batch={micro_batch}"])
    size, passes = accumulation(config, world_size)
    assert size * passes * world_size == 144
    assert size <= micro_batch
    shape = batch_shape(config, world_size)
    assert shape.straddles == (world_size in (4, 8))
    assert shape.groups * 8 == shape.per_rank


def test_a_world_size_that_does_not_divide_names_those_that_do() -> None:
    with pytest.raises(ConfigError, match=r"144 episodes do not divide by 5 processes; start one of 1, 2, 3, 4, 6"):
        batch_shape(load_config([RECIPE]), 5)


def test_a_corpus_smaller_than_an_update_says_what_to_set() -> None:
    config = load_config([RECIPE])
    check_corpus_size(config, 18, "data")
    with pytest.raises(ConfigError, match=r"holds 3 questions, fewer than the 18 .* set train.questions_per_update=3"):
        check_corpus_size(config, 3, "data")
    with pytest.raises(ConfigError, match="holds no question; see its dropped.jsonl"):
        check_corpus_size(config, 0, "data")


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant", "constant_with_warmup"])
def test_learning_rate_is_that_of_transformers(kind: str) -> None:
    import torch
    from transformers import get_scheduler

    config = load_config([RECIPE], ["train.updates=40", "train.warmup_ratio=0.1", f"train.lr_scheduler={kind}"])
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=config.train.learning_rate)
    scheduler = get_scheduler(kind, optimizer, warmup_steps(config), config.train.updates)
    for update in range(config.train.updates):
        assert learning_rate(config, update) == pytest.approx(scheduler.get_last_lr()[0], rel=1e-9, abs=1e-18)
        optimizer.step()
        scheduler.step()


def test_the_recipe_turns_where_the_paper_says() -> None:
    config = load_config([RECIPE, SQALE])
    assert turning_points(config) == [0, 40, 80, 400, 900, 1400, 1799]
    assert list(anchors(config))[:2] == [111, 222]
    assert len(anchors(config)) == 16
    assert warmup_steps(config) == 90
    assert config.curriculum.natural_shares() == (0.5, 0.3, 0.15, 0.05)
    assert list(anchors(load_config([RECIPE], ["train.anchor_updates=0"]))) == []


def test_a_short_run_has_points_inside_it() -> None:
    assert turning_points(load_config([RECIPE], ["train.updates=30"])) == [0, 29]
    assert turning_points(load_config([RECIPE], ["train.updates=1"])) == [0]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ([], []),
        (["train.updates=300"], ["never leaves the short bucket: its 300 updates end within the first 400"]),
        (["train.updates=600"], ["20% of its way from curriculum.start"]),
        (
            ["train.updates=60", "curriculum.strength=0"],
            ["ends with 26% of the submit gates closed", "never re-anchored"],
        ),
        (
            ["train.updates=40", "curriculum.strength=0", "train.beta=0"],
            ["51% of the submit gates", "no checkpoint before"],
        ),
        (["train.updates=600", "curriculum.scale_to_run=true"], []),
        (["train.updates=60", "curriculum.scale_to_run=true"], []),
    ],
)
def test_the_plan_says_what_a_length_leaves_out(overrides: list[str], says: list[str]) -> None:
    told = plan_warnings(load_config([RECIPE, SQALE], overrides))
    assert len(told) == (len(says) + 1 if says else 0)
    assert all(any(words in line for line in told) for words in says), told
    assert not says or "curriculum.scale_to_run=true" in told[-1]


def peak_gib(overrides: list[str], strategy: str = "single", gpus: int = 1) -> float:
    return peak(memory_parts(load_config([RECIPE], overrides), 1, strategy), gpus) / GIB


def test_memory_adds_up_by_hand() -> None:
    text, vision, tokens = 1_881_825_088, 330_000_000, 12_288
    weights, trained = (text + vision) * 4, text * 4
    inside = tokens * (8 * 2048 + 3 * 6144) * 2
    head = 4096 * 32768 * 2 + 248_320 * 2048 * 4
    # One GPU and DDP: the optimizer's step takes more than a pass. Sharded: the other way round.
    passing = 24 * tokens * 2048 * 4 + inside + head
    assert passing < trained
    single = weights + trained + 2 * trained + 2 * text + weights + 2 * GIB + trained
    assert peak_gib([]) == pytest.approx(single / GIB)
    assert peak_gib([], "ddp", 3) == pytest.approx((single + trained) / GIB)
    passing = 24 * tokens * 2048 * 2 + inside + head
    # DeepSpeed: 16-bit weights, gradients and reference; float32 weights and moments shared out.
    computing = (text + vision) * 2
    zero2 = computing + (2 * text + 3 * trained) / 3 + computing + passing + 2 * GIB
    assert peak_gib([], "zero2", 3) == pytest.approx(zero2 / GIB)
    zero3 = (2 * computing + 2 * text + 3 * trained) / 8 + passing + 2 * GIB
    assert peak_gib([], "zero3", 8) == pytest.approx(zero3 / GIB)
    assert peak_gib([], "fsdp2", 8) == pytest.approx((2 * weights + 3 * trained) / 8 / GIB + passing / GIB + 2)
    # A short episode under ZeRO: the step is the larger.
    short = ["rollout.max_episode_tokens=600", "rollout.max_turn_tokens=100"]
    assert peak_gib(short, "zero2", 1) == pytest.approx((2 * computing + 2 * text + 4 * trained) / GIB + 2)


def test_memory_falls_with_sharding_lora_and_without_reference() -> None:
    plain, zero2, zero3 = peak_gib([]), peak_gib([], "zero2", 8), peak_gib([], "zero3", 8)
    assert plain > zero2 > zero3
    assert peak_gib(["model.lora_rank=16"]) < plain / 2
    assert plain - peak_gib(["train.beta=0"]) == pytest.approx(2_211_825_088 * 4 / GIB)
    assert peak_gib(["model.gradient_checkpointing=false"]) > plain


def test_an_80_gb_card_holds_the_longest_episode_with_vllm_beside_it() -> None:
    """What the recipe and docs/multi_gpu.md rely on: 0.3 of the card for vLLM (DDP: 0.2), the rest for training."""
    share = load_config([RECIPE]).rollout.vllm_memory_share
    card = dict(CARDS)[80]
    for strategy, gpus in (("single", 1), ("zero2", 3), ("zero2", 8), ("zero3", 3), ("fsdp2", 8)):
        assert peak_gib([], strategy, gpus) < card * (1 - share), strategy
    assert card * 0.7 < peak_gib([], "ddp", 3) < card * 0.8


OWN = ROOT / "configs" / "own"


@pytest.mark.parametrize(("name", "gb"), [("gpu24", 24), ("gpu80", 80)])
def test_a_recipe_of_ones_own_fits_the_card_that_it_names(name: str, gb: int) -> None:
    config = load_config([OWN / f"{name}.yaml"], ["corpus.source=data"])
    parts = memory_parts(config, 1, "single", model_shape(config.model.path))
    assert smallest_card(config, parts, 1) == gb


def test_a_vllm_that_sleeps_takes_its_memory_in_turn_with_the_passes() -> None:
    config = load_config([RECIPE])
    parts = memory_parts(config, 1, "single")
    busy = {kind: sum(part.on_rank(1) for part in parts if part.during == kind) for kind in ("always", "pass", "step")}
    most, engine = max(busy["pass"], busy["step"]), 20 * GIB
    assert peak(parts, 1, engine) == pytest.approx(busy["always"] + most + engine)
    assert peak(parts, 1, engine, sleeps=True) == pytest.approx(busy["always"] + max(most, engine))
    config.rollout.vllm_memory_share = 0.9
    assert smallest_card(config, parts, 1) is None


@pytest.mark.parametrize(
    ("name", "updates", "counts"),
    [
        ("cpu", 8, (3, 4, 4)),
        ("cpu_135m", 60, (10, 10, 10)),
        ("gpu24", 300, (15, 20, 20)),
        ("gpu80", 400, (20, 25, 25)),
        ("gpu24", 30, (2, 2, 2)),
        ("gpu80", 1_800, (90, 112, 112)),
    ],
)
def test_the_schedules_of_ones_own_recipes_are_shares_of_the_run(name: str, updates: int, counts: tuple) -> None:
    config = load_config([OWN / f"{name}.yaml"], [f"train.updates={updates}", "corpus.source=data"])
    train = config.train
    assert (config.curriculum.gate_updates, train.anchor_updates, train.save_updates) == counts
    assert plan_warnings(config) == []


def test_a_checkpoint_is_what_was_measured_a_parameter() -> None:
    recipe, lora = load_config([RECIPE]), load_config([RECIPE], ["model.lora_rank=8"])
    assert checkpoint_bytes(recipe) / GIB == pytest.approx(30.5, abs=0.05)
    assert checkpoint_bytes(recipe, sharding="zero2") / GIB == pytest.approx(34.3, abs=0.05)
    assert checkpoint_bytes(lora) == 8 * 976_896 * 4 * 4, "adapters of policy and reference, two moments"
    assert checkpoint_bytes(load_config([RECIPE], ["train.beta=0"])) / GIB == pytest.approx(22.3, abs=0.05)


def test_the_plan_shows_the_sizes_of_the_model_that_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    for path, text, hidden in (("Qwen/Qwen3.5-0.8B", 752_393_024, 1_024), ("SmolLM2-135M-Instruct", 134_515_008, 576)):
        assert (model_shape(path).text, model_shape(path).hidden) == (text, hidden), "its name is known"
    shape = model_shape(demo_policy_folder())
    assert shape.vision == 0 and shape.layers == 2 and 100_000 < shape.text < 1_000_000
    assert model_shape("Qwen/Qwen3.5-2B") is QWEN35_2B
    assert main([str(DEMO), "--dry-run", "model.lora_rank=4"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"text = {shape.text:,}" in shown and f"trained = {4 * shape.lora:,}" in shown
    assert "MiB a process" in shown and "smallest card" not in shown and "stand in" not in shown
    assert main([str(RECIPE), str(SQALE), "--dry-run", "model.path=ada/unknown"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "sizes stand in for ada/unknown's, whose files are not at hand" in shown and "80 GB" in shown


def test_dry_run_prints_the_plan_without_torch() -> None:
    program = (
        "import sys; from sqale_grpo.commands import main; code = main(['train', *sys.argv[1:]]); "
        "print('loaded', sorted({'torch', 'transformers', 'trl'} & set(sys.modules)), code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(RECIPE), str(SQALE), "--dry-run"],
        cwd=ROOT,
        env={"COLUMNS": "160", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "loaded [] 0"
    for word in ("259,200", "groups straddle ranks", "8.89e-06", "1,799", "re-anchored 16 times", "AdamW", "12,288"):
        assert word in done.stdout, word


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([str(DEMO), "train.updates=none"], "train.updates must be int"),
        ([], "no config file given"),
        ([str(DEMO), "configs/other.yaml"], "no config file at configs/other.yaml"),
        ([str(DEMO), "corpus.name=jsonl", "corpus.source=/nowhere"], "/nowhere"),
        ([str(DEMO), "corpus.name=bird", "corpus.limit=9"], "sqale-grpo corpus prepare --corpus bird --source PATH"),
        ([str(DEMO), "corpus.name=bird", "corpus.limit=9"], "--limit 9"),
        ([str(DEMO), "env.prompts=nowhere.json"], "no prompts file at nowhere.json"),
        ([str(DEMO), "model.path=./nowhere"], "there is no folder ./nowhere"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*arguments, f"output={tmp_path}", f"corpus.prepared={tmp_path}/prepared"]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and words in error
    assert len(error.splitlines()) == 1


def test_a_launch_that_does_not_divide_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "7")
    assert main([str(RECIPE), "--dry-run"]) == 2
    assert "do not divide by 7 processes" in capsys.readouterr().err


def test_overrides_may_stand_after_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DEMO), "--dry-run", "train.updates=12"]) == 0
    assert "updates: 12" in capsys.readouterr().out
