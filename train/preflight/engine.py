"""What generates against what trains: the same log-probabilities, weights that arrive, turns that end."""

import math
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch

from sqale_grpo.rollout.tokens import EpisodeTokens, RolloutStats
from sqale_grpo.rollout.world import EpisodeJob, open_worlds
from sqale_grpo.train.importance import effective_share
from sqale_grpo.train.log_probs import written_log_probs
from sqale_grpo.train.player import open_player
from sqale_grpo.train.preflight.table import CheckRow, failed, right
from sqale_grpo.train.sharded import reshard, set_value, whole_value
from sqale_grpo.train.sync import send_weights

PROMPTS, TURNS, TURN_TOKENS = 8, 3, 64  # a process
LONG_EPISODE = 3_000  # tokens that the policy writes in one, for the extrapolation
FACTORS = (1.05, 1.2, 1.5, 2.0, 4.0)  # a weight is multiplied by, until the trainer notices
NOTICED = 10  # limits by which the trainer's log-probabilities must have moved
CUT_SHARE = 0.5


@dataclass(frozen=True)
class Differences:
    """The trainer's log-probability minus the sampler's, a written token: an episode a list, a turn a list within."""

    episodes: tuple[tuple[tuple[float, ...], ...], ...]

    @property
    def tokens(self) -> list[float]:
        """Of all tokens."""
        return [each for turns in self.episodes for turn in turns for each in turn]

    @property
    def mean(self) -> float:
        """Mean absolute difference, in nats a token."""
        return sum(map(abs, self.tokens)) / max(1, len(self.tokens))

    def of_turn(self, number: int) -> float | None:
        """The mean of every episode's turn ``number`` (from 0); None where no episode has one."""
        values = [abs(each) for turns in self.episodes if len(turns) > number for each in turns[number]]
        return sum(values) / len(values) if values else None

    def variance(self) -> float:
        """Of the sum over an episode, a token: the larger of single tokens' and of whole episodes' (they may lean)."""
        tokens = self.tokens
        single = sum(each * each for each in tokens) / max(1, len(tokens))
        sums = [(sum(map(sum, turns)), sum(map(len, turns))) for turns in self.episodes if turns]
        whole = sum(total * total for total, _ in sums) / max(1, sum(count for _, count in sums))
        return max(single, whole)


def limit(trainer: Any) -> float:
    """The largest mean difference that is rounding, in nats a token.

    The same weights in float32: none. vLLM in bfloat16 on a GPU: published runs have 0.005 to 0.015. On a CPU its
    kernels round more (measured: 0.018).
    """
    if not trainer.use_vllm:
        return 1e-3 if trainer.experiment.config.model.dtype == "float32" else 2e-2
    return 2e-2 if trainer.accelerator.device.type == "cuda" else 4e-2


def first_jobs(trainer: Any, episodes: int) -> list[EpisodeJob]:
    """Jobs of the run's first update, each process others; gates open, so that a turn may end an episode."""
    experiment, process = trainer.experiment, trainer.accelerator.process_index
    update, batch = experiment.first_update, experiment.batch(experiment.first_update)
    wanted = range(process * episodes, (process + 1) * episodes)
    return [replace(experiment.job(batch[n % len(batch)], update, n // len(batch)), gated=False) for n in wanted]


def sample(trainer: Any, episodes: int, turns: int, turn_tokens: int) -> list[EpisodeTokens]:
    """Play so many episodes of the first update with what generates, with the run's prompts, tools and temperature.

    At most ``turns`` turns, and two at the least: an episode has a final one.
    """
    experiment = trainer.experiment
    settings = replace(experiment.settings, episode=replace(experiment.settings.episode, tool_turns=max(1, turns - 1)))
    experiment = replace(experiment, sampling=replace(experiment.sampling, max_turn_tokens=turn_tokens))
    if trainer.use_vllm and getattr(trainer.vllm_generation, "_llm_weights_sleeping", False):
        send_weights(trainer)  # rollout.vllm_sleep: it forgot them after the last rollout, and its cache with them
    with ExitStack() as stack:
        opened = open_worlds(experiment.corpus, first_jobs(trainer, episodes), settings, stack)
        play = stack.enter_context(open_player(trainer, experiment, RolloutStats()))
        return play([each.episode for each in opened], [each.key for each in opened])


@torch.no_grad()
def trained_log_probs(trainer: Any, played: list[EpisodeTokens]) -> list[list[float]]:
    """The trainer's log-probability of every token of every completion, 0 where the environment wrote it."""
    prompt, completion = (max(len(getattr(p, name)) for p in played) for name in ("prompt_ids", "completion_ids"))
    ids = torch.full((len(played), prompt + completion), trainer.experiment.frame.stop_id)
    mask = torch.zeros_like(ids)
    written = torch.zeros(len(played), completion, dtype=torch.long)
    for row, each in enumerate(played):
        ends = prompt + len(each.completion_ids)
        ids[row, prompt - len(each.prompt_ids) : ends] = torch.tensor(each.prompt_ids + each.completion_ids)
        mask[row, prompt - len(each.prompt_ids) : ends] = 1
        written[row, : len(each.env_mask)] = torch.tensor(each.env_mask)
    ids, mask, written = (each.to(trainer.accelerator.device) for each in (ids, mask, written))
    rows = trainer.args.per_device_train_batch_size
    logps, _ = written_log_probs(trainer.model, ids, mask, written, rows, trainer.accelerator.autocast)
    return [values[: len(each.completion_ids)] for values, each in zip(logps.tolist(), played, strict=True)]


def differences(trainer: Any, played: list[EpisodeTokens]) -> Differences:
    """How far the trainer is from the sampler on ``played``."""
    episodes = []
    for values, each in zip(trained_log_probs(trainer, played), played, strict=True):
        marked = zip(each.env_mask, (a - b for a, b in zip(values, each.logprobs, strict=True)), strict=True)
        turns = [tuple(d for _, d in run) for wrote, run in groupby(marked, key=lambda pair: pair[0]) if wrote]
        episodes.append(tuple(turns))
    return Differences(tuple(episodes))


def parity(trainer: Any) -> tuple[CheckRow, CheckRow]:
    """Engine against trainer after a transfer of the weights, and what that leaves of long episodes.

    The same prompts twice: with an empty prefix cache, and with one that holds them. A difference that grows from turn
    to turn is a state that one of the two carries wrongly.
    """
    name, most = "engine and trainer", limit(trainer)
    if trainer.use_vllm:
        send_weights(trainer)
    cold, warm = (differences(trainer, sample(trainer, PROMPTS, TURNS, TURN_TOKENS)) for _ in range(2))
    forgets = trainer.use_vllm and trainer.experiment.config.rollout.vllm_sleep
    by_turn = [mean for number in range(TURNS) if (mean := cold.of_turn(number)) is not None]
    found = (
        f"mean difference {cold.mean:.1e} nats a token with a cold cache, {warm.mean:.1e} "
        f"{'again (rollout.vllm_sleep: no cache is kept)' if forgets else 'with a warm one'}; by turn "
        f"{', '.join(f'{mean:.1e}' for mean in by_turn)}; {len(cold.tokens)} tokens a time, limit {most:g}"
    )
    share = effective(trainer, max(cold.variance(), warm.variance()))
    if not all(map(math.isfinite, (*cold.tokens, *warm.tokens))):
        row = failed(name, f"log-probabilities that are no numbers; {found}", "the trainer's kernels: see their row")
    elif cold.mean > most:
        row = failed(name, found, "the engine holds other weights or computes otherwise: another vLLM, or eager")
    elif warm.mean > most:
        row = failed(name, found, "the prefix cache is wrong for this model: rollout.vllm_prefix_caching=false")
    elif len(by_turn) > 1 and by_turn[-1] > 3 * by_turn[0] + most / 4:
        row = failed(name, f"it grows from turn to turn: {found}", "a state bug: rollout.vllm_prefix_caching=false")
    else:
        row = right(name, found)
    return row, share


def effective(trainer: Any, variance: float) -> CheckRow:
    """The effective share of episodes in which the policy writes ``LONG_EPISODE`` tokens."""
    name, train = "effective share", trainer.experiment.config.train
    if train.importance_level != "sequence":
        return CheckRow(name, "not made", f"the correction is at level {train.importance_level}")
    masked = train.importance_mode == "mask"
    share = effective_share(variance * LONG_EPISODE, train.importance_cap, masked)
    found = f"{share:.2f} of episodes of {LONG_EPISODE:,} written tokens (deviation {variance**0.5:.1e} a token)"
    if share < 0.5:
        return CheckRow(name, "warned", found, "train.importance_level=token weighs each token by itself")
    return right(name, found)


def weights_arrive(trainer: Any) -> CheckRow:
    """A weight is changed, sent, and the engine must follow; then all is as it was, and sent again."""
    name, most = "weights arrive", limit(trainer)
    if not trainer.use_vllm:
        return CheckRow(name, "not made", "the trainer's own weights generate")
    policy = trainer.accelerator.unwrap_model(trainer.model)
    weight_name, weight = a_weight(policy)
    played = sample(trainer, PROMPTS, 1, TURN_TOKENS)
    before = trained_log_probs(trainer, played)
    reshard(policy)
    kept = whole_value(weight)
    try:
        for factor in FACTORS:
            reshard(policy)
            set_value(weight, kept * factor)
            moved = _apart(trainer, before, trained_log_probs(trainer, played))
            if moved > NOTICED * most:
                break
        send_weights(trainer)
        follows = differences(trainer, sample(trainer, PROMPTS, 1, TURN_TOKENS)).mean
    finally:
        reshard(policy)
        set_value(weight, kept)
    send_weights(trainer)
    back = differences(trainer, sample(trainer, PROMPTS, 1, TURN_TOKENS)).mean
    found = (
        f"{weight_name} x {factor:g} moved the trainer by {moved:.1e} nats a token; the engine followed to "
        f"{follows:.1e}, and back to {back:.1e}"
    )
    if moved <= NOTICED * most:
        return CheckRow(name, "warned", found, "too little to tell: the weight hardly matters")
    if not (follows < moved / 4 and back <= most):
        return failed(name, found, "weights do not reach the engine, or it keeps what it had computed with older ones")
    return right(name, found)


def a_weight(policy: torch.nn.Module) -> tuple[str, torch.nn.Parameter]:
    """A weight early in the language model, which all that follows depends on, cached keys and states too."""
    named = [(name, each) for name, each in policy.named_parameters() if ".layers.0." in name and "lora_" not in name]
    chosen = [pair for pair in named if "down_proj" in pair[0]] or [pair for pair in named if pair[1].dim() > 1]
    return chosen[0]


def turns_cut(trainer: Any) -> CheckRow:
    """The share of first turns that end at their cap of tokens and not where the policy ends them."""
    name, most = "turns cut", trainer.experiment.sampling.max_turn_tokens
    stops = trainer.experiment.frame.stop_ids
    played = sample(trainer, PROMPTS, 1, most)
    turns = []  # what the policy wrote before the environment's first word
    for each in played:
        length = next((n for n, wrote in enumerate(each.env_mask) if not wrote), len(each.env_mask))
        turns.append(each.completion_ids[:length])
    cut = sum(len(tokens) >= most and tokens[-1] not in stops for tokens in turns)
    found = f"{cut} of {len(turns)} first turns end at {most:,} tokens (rollout.max_turn_tokens)"
    if cut > CUT_SHARE * len(turns):
        return CheckRow(
            name, "warned", found, "thinking that never ends: raise the cap, or model.enable_thinking=false"
        )
    return right(name, found)


def _apart(trainer: Any, before: list[list[float]], after: list[list[float]]) -> float:
    """Mean absolute difference over all processes, so that all take the same decision."""
    pairs = [(a, b) for old, new in zip(before, after, strict=True) for a, b in zip(old, new, strict=True) if a or b]
    sums = torch.tensor([sum(abs(a - b) for a, b in pairs), float(len(pairs))], device=trainer.accelerator.device)
    total, count = trainer.accelerator.reduce(sums, reduction="sum").tolist()
    return total / max(1.0, count)
