"""The plan of a run, printed by ``--dry-run`` without loading torch or a model: shapes, schedules, anchors, memory.

What changes from update to update: the learning rate and the reference anchors (mixture and gate: curriculum).
"""

import math
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from sqale_grpo.corpus import open_prepared
from sqale_grpo.corpus.prepared import MARKER
from sqale_grpo.curriculum import gate_probability
from sqale_grpo.curriculum.buckets import NAMES
from sqale_grpo.env.text import harmless
from sqale_grpo.rollout.policy_path import resolve_policy
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.corpora import prepare_command, prepared_folder
from sqale_grpo.settings.keys import SCALED, Config
from sqale_grpo.settings.shape import batch_shape, check_corpus_size, launched_processes
from sqale_grpo.train.memory import GIB, checkpoint_bytes, memory_parts, peak, smallest_card
from sqale_grpo.train.model_shape import QWEN35_2B, ModelShape, is_assumed, model_shape


def warmup_steps(config: Config) -> int:
    """Updates over which the learning rate rises."""
    return round(config.train.warmup_ratio * config.train.updates)


def learning_rate(config: Config, update: int) -> float:
    """The rate of ``update`` (the first is 0), equal to transformers' scheduler of that name: a warm-up starts at 0."""
    train, rise = config.train, warmup_steps(config)
    if train.lr_scheduler == "constant":
        return train.learning_rate
    if update < rise:
        return train.learning_rate * update / rise
    progress = (update - rise) / max(1, train.updates - rise)
    if train.lr_scheduler == "constant_with_warmup":
        return train.learning_rate
    if train.lr_scheduler == "linear":
        return train.learning_rate * max(0.0, 1 - progress)
    return train.learning_rate * max(0.0, 0.5 * (1 + math.cos(math.pi * progress)))


def anchors(config: Config) -> range:
    """Counts of completed updates after which the reference becomes a copy of the policy."""
    every = config.train.anchor_updates
    return range(every, config.train.updates + 1, every) if every else range(0)


def turning_points(config: Config) -> list[int]:
    """The updates at which a schedule starts, bends or ends, halves between them, and the last update."""
    curriculum = config.curriculum
    warm, ramp, gate = curriculum.warmup_updates, curriculum.ramp_updates, curriculum.gate_updates
    points = {0, gate // 2, gate, warm, warm + ramp // 2, warm + ramp}
    last = config.train.updates - 1
    return sorted({point for point in points if point < last} | {last})


def plan_warnings(config: Config) -> list[str]:
    """What a run of this length leaves out of its schedules, a sentence each."""
    train, curriculum = config.train, config.curriculum
    updates, warm, settled = (
        train.updates,
        curriculum.warmup_updates,
        curriculum.warmup_updates + curriculum.ramp_updates,
    )
    found = []
    if curriculum.strength > 0 and updates <= warm:
        found.append(f"the run never leaves the short bucket: its {updates:,} updates end within the first {warm:,}")
    elif curriculum.strength > 0 and updates < settled:
        share = (updates - warm) / curriculum.ramp_updates
        found.append(f"the mixture ends {share:.0%} of its way from curriculum.start to curriculum.end")
    gate = gate_probability(updates - 1, curriculum.gate_start, curriculum.gate_updates)
    if gate > GATE_SHARE:
        found.append(f"the run ends with {gate:.0%} of the submit gates closed")
    if train.beta and updates < train.anchor_updates:
        found.append("the reference is never re-anchored")
    if updates < train.save_updates:
        found.append("there is no checkpoint before the end: a kill loses everything (train.save_updates)")
    if found and _of_a_long_run(config):
        found.append("curriculum.scale_to_run=true gives all of these as shares of the run")
    return found


def _of_a_long_run(config: Config) -> bool:
    """Whether the counts of updates are those of the recipe's 1,800: shares of a run's own counts would be nothing."""
    usual = Config()
    return all(getattr(getattr(config, s), n) == getattr(getattr(usual, s), n) for s, n in SCALED)


GATE_SHARE = 0.05
WORLD_SIZES = (1, 2, 3, 4, 6, 8, 9)
# (heading, strategy, GPUs or processes)
SHARDINGS = (
    ("1 GPU", "single", 1),
    ("DDP", "ddp", 1),
    ("3 GPUs\nZeRO-2", "zero2", 3),
    ("8 GPUs\nZeRO-2", "zero2", 8),
    ("8 GPUs\nZeRO-3", "zero3", 8),
    ("8 GPUs\nFSDP2", "fsdp2", 8),
)
ON_THE_CPU = (("1 process", "single", 1), ("2, DDP", "ddp", 2))


def print_plan(config: Config, console: Console) -> None:
    """Print everything that can be known before a model is loaded.

    Raises ConfigError where the processes of this very launch (``WORLD_SIZE``) cannot share out a batch.
    """
    started = launched_processes()
    batch_shape(config, started)
    console.print(totals(config))
    console.print(harmless(corpus_text(config)), markup=False)
    console.print(shape_table(config, sorted({*WORLD_SIZES, started})))
    console.print(schedule_table(config))
    console.print(anchor_text(config))
    for warning in plan_warnings(config):
        console.print(f"note: {warning}", style="yellow", highlight=False)
    path = resolve_policy(config.model.path)
    shape = model_shape(path, config.model.lora_targets)
    for table in memory_tables(config, batch_shape(config, started).micro_batch, shape, is_assumed(shape, path)):
        console.print(table)


def corpus_text(config: Config) -> str:
    """Where the prepared questions lie, and how many; ConfigError where they are fewer than an update takes."""
    name, source, split = config.corpus.name, config.corpus.source, config.corpus.split
    folder = prepared_folder(config, split)
    if (folder / MARKER).exists():
        questions = len(open_prepared(folder))
        check_corpus_size(config, questions, str(folder))
        return f"corpus: {questions:,} questions in {folder}"
    if source is not None or name == "demo":
        return f"corpus: {folder} is not there yet; the run prepares it from {source or 'the generator'}"
    return f"corpus: {folder} is not there yet; prepare it first:\n  {prepare_command(config, split)}"


def totals(config: Config) -> Table:
    """What the run adds up to."""
    train, rollout = config.train, config.rollout
    episodes = train.questions_per_update * train.candidates
    most = episodes * rollout.max_episode_tokens
    table = Table(title=f"run {config.name}: {config.model.path} on {config.corpus.name}", show_header=False)
    for row in (
        ("updates", f"{train.updates:,}"),
        ("batch", f"{train.questions_per_update} questions x {train.candidates} candidates = {episodes} episodes"),
        ("episodes in all", f"{episodes * train.updates:,}"),
        ("questions drawn", f"{train.questions_per_update * train.updates:,}"),
        ("tokens an update", f"at most {most:,} (every episode at its budget of {rollout.max_episode_tokens:,})"),
        ("tokens in all", f"at most {_large(most * train.updates)}"),
        ("tables a database", f"{config.sampler.min_tables} to {config.sampler.max_tables}, uniform"),
        ("turns", f"{config.env.tool_turns} with tools, then 1 final"),
        ("evaluation", "none while it trains; sqale-grpo evaluate measures its checkpoints"),
        ("run folder", f"{config.output}/{config.name}"),
    ):
        table.add_row(*row)
    return table


def _large(number: int) -> str:
    return f"{number / 1e9:,.2f} billion" if number >= 1e9 else f"{number / 1e6:,.1f} million"


def shape_table(config: Config, world_sizes: Iterable[int]) -> Table:
    """The batch by number of processes; a number that does not divide the batch says so."""
    table = Table(title="batch shape by number of processes (GPUs)")
    for column in ("processes", "episodes a rank", "micro-batch", "passes an update", "groups a rank", ""):
        table.add_column(column, justify="left" if not column else "right")
    for world_size in world_sizes:
        try:
            shape = batch_shape(config, world_size)
        except ConfigError:
            episodes = config.train.questions_per_update * config.train.candidates
            table.add_row(
                str(world_size), "–", "–", "–", "–", f"cannot start: {episodes} does not divide by {world_size}"
            )
            continue
        table.add_row(
            str(world_size),
            str(shape.per_rank),
            str(shape.micro_batch),
            str(shape.accumulation),
            f"{shape.groups:g}",
            "groups straddle ranks" if shape.straddles else "",
        )
    return table


def schedule_table(config: Config) -> Table:
    """Learning rate, gate and mixture at the updates where a schedule bends, with the questions expected a bucket."""
    curriculum, schedule = config.curriculum, config.curriculum.schedule()
    table = Table(title=f"schedules (curriculum strength {curriculum.strength:g}); of each bucket: share (questions)")
    for column in ("update", "learning rate", "gate closed", *(name.replace("_", " ") for name in NAMES)):
        table.add_column(column, justify="right")
    for update in turning_points(config):
        gate = gate_probability(update, curriculum.gate_start, curriculum.gate_updates)
        shares = schedule.mixture(update)
        table.add_row(
            f"{update:,}",
            f"{learning_rate(config, update):.2e}",
            f"{gate:.2f}",
            *(f"{share:.3f} ({share * config.train.questions_per_update:.1f})" for share in shares),
        )
    return table


def anchor_text(config: Config) -> str:
    """When the reference is re-anchored and the run is saved."""
    points, train = anchors(config), config.train
    if train.beta == 0:
        reference = "reference: none (train.beta is 0)"
    elif not points:
        reference = "reference: the initial policy, never re-anchored"
    else:
        listed = ", ".join(f"{point:,}" for point in points)
        reference = f"reference: re-anchored {len(points)} times, after {listed} updates"
    written = -(-train.updates // train.save_updates)
    return (
        f"{reference}\ncheckpoints: {written}, one every {train.save_updates} updates and at the end; "
        f"the newest {train.keep_checkpoints} are kept"
    )


def memory_tables(
    config: Config, micro_batch: int, shape: ModelShape = QWEN35_2B, assumed: bool = False
) -> tuple[Table, Table]:
    """The formula of each part, then its size a GPU, or a process on the CPU, by way of sharing: the longest episodes.

    ``assumed``: ``shape`` is not that of the run's own model, whose files are not at hand.
    """
    rollout, on_cpu = config.rollout, config.train.use_cpu
    shardings = ON_THE_CPU if on_cpu else SHARDINGS
    counts = [number for _, _, number in shardings]
    columns = [
        {part.name: part for part in memory_parts(config, micro_batch, strategy, shape)} for _, strategy, _ in shardings
    ]
    parts = {part.name: part.formula for column in columns for part in column.values()}
    formulas = Table(
        title=f"memory by formula, in bytes, for {shape.name}, {micro_batch} x {rollout.max_episode_tokens:,} tokens a "
        "pass",
        caption=sizes_text(config, micro_batch, shape, assumed),
    )
    formulas.add_column("part")
    formulas.add_column("formula")
    for named in parts.items():
        formulas.add_row(*named)
    peaks = [peak(column.values(), n) for column, n in zip(columns, counts, strict=True)]
    unit, name = (GIB, "GiB") if max(peaks) >= GIB else (GIB // 1024, "MiB")
    table = Table(
        title=f"the same in {name} {'a process' if on_cpu else 'a GPU'}",
        caption="An estimate, not a measurement. The peak has the larger of the passes and the optimizer's step.",
    )
    table.add_column("part")
    for heading, _, _ in shardings:
        table.add_column(heading, justify="right")
    for part in parts:
        shown = [
            column[part].on_rank(n) / unit if part in column else 0.0 for column, n in zip(columns, counts, strict=True)
        ]
        table.add_row(part, *(f"{size:.1f}" if size else "–" for size in shown))
    table.add_section()
    table.add_row("at the peak", *(f"{size / unit:.1f}" for size in peaks))
    if not on_cpu:
        share = rollout.vllm_memory_share if rollout.backend == "vllm_colocate" else 0.0
        beside = f", {share:g} of it for a vLLM{' that sleeps' if rollout.vllm_sleep else ''}" if share else ""
        cards = [smallest_card(config, column.values(), n) for column, n in zip(columns, counts, strict=True)]
        table.add_row(f"smallest card{beside}", *(f"{card} GB" if card else "none" for card in cards))
    return formulas, table


def sizes_text(config: Config, micro_batch: int, shape: ModelShape, assumed: bool) -> str:
    """What the formulas' names stand for, and what a checkpoint takes."""
    given = {
        "text": shape.text,
        "vision": shape.vision,
        "layers": shape.layers,
        "hidden": shape.hidden,
        "intermediate": shape.intermediate,
        "vocabulary": shape.vocabulary,
    }
    if config.model.lora_rank:
        given["trained"] = config.model.lora_rank * shape.lora
    sizes = ", ".join(f"{name} = {value:,}" for name, value in given.items())
    other = f"{shape.name}'s sizes stand in for {config.model.path}'s, whose files are not at hand. " if assumed else ""
    plain, sharded = (checkpoint_bytes(config, shape, sharding) for sharding in ("none", "zero2"))
    return (
        f"{other}tokens = {micro_batch} x {config.rollout.max_episode_tokens:,}, {sizes}. One checkpoint takes about "
        f"{_disk(plain)} on disk, {_disk(sharded)} under ZeRO."
    )


def _disk(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / 2**20:.1f} MiB"
