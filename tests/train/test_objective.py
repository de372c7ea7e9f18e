"""Every objective that is offered: the real trainer's loss and gradient against the formula, episode by episode.

The recipe's:

loss = sum over the update's episodes and the tokens that the policy wrote of
       [ -w min(p A, clip(p, 0.8, 1.28) A) + 0.005 (exp(d) - d - 1) ] / (episodes x 1,024)
with p the policy's ratio to itself at sampling time, A the reward minus its group's mean, d the log-probability of
the reference minus the policy's, and w the ratio of trainer to sampler over the whole episode, at most 3. Others divide
by other numbers, take w a token or set it to 0 over 3, and multiply the last term by p.
"""

import math
from dataclasses import dataclass

import pytest
import torch

from sqale_grpo.settings.load import known_keys, load_config, load_words
from sqale_grpo.train.run import run
from tests.conftest import ROOT

REWARDS = [3.0, 0.5, 1.25, 1.0]  # two groups of two
# By how much the sampler's log-probability of each token differs: one episode's ratio is far over the cap.
SAMPLER_OFF = [0.4, -0.003, 0.01, 0.0]
PASSES = (slice(0, 2), slice(2, 4))
OLD_OFF = 0.35  # by how much every third token was more, and every other third less likely at sampling time


@pytest.fixture(scope="module")
def trained(quick, tmp_path_factory):
    """A trainer after an update, its policy moved away from the reference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        folder = tmp_path_factory.mktemp("objective")
        words = [*quick, "name=objective", f"output={folder}", "train.updates=1", "train.micro_batch=2"]
        trainer = run(load_words([*words, "train.loss_constant=1024"])).trainer
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.02)
    trainer.model.train()
    return trainer


def log_probs(model, prompt: list[int], completion: list[int]) -> torch.Tensor:
    """Of each token of the completion, by a plain forward pass of the one episode."""
    logits = model(input_ids=torch.tensor([prompt + completion])).logits[0].float().log_softmax(-1)
    at = torch.arange(len(prompt) - 1, len(prompt) + len(completion) - 1)
    return logits[at, torch.tensor(completion)]


def test_the_recipe_asks_for_this_objective():
    train = load_config([ROOT / "configs" / "recipe.yaml"]).train
    assert (train.loss_type, train.loss_constant, train.scale_rewards) == ("dr_grpo", 1_024, "none")
    assert (train.clip_low, train.clip_high, train.beta) == (0.2, 0.28, 0.005)
    assert (train.importance_level, train.importance_mode, train.importance_cap) == ("sequence", "mask", 3.0)


@dataclass(frozen=True)
class Objective:
    """What of the objective a configuration can choose."""

    loss: str = "dr_grpo"
    scale: str = "none"
    importance: str = "sequence_truncate"
    beta: float = 0.005
    corrected: bool = False  # train.kl_bias_correction


OBJECTIVES = [
    *(Objective(loss=loss) for loss in ("dr_grpo", "dapo", "bnpo", "grpo")),
    *(Objective(scale=scale) for scale in ("group", "batch")),
    *(Objective(importance=f"{level}_{mode}") for level in ("token", "sequence") for mode in ("truncate", "mask")),
    Objective(corrected=True),
    Objective(loss="grpo", scale="group", importance="token_mask", corrected=True),
    Objective(beta=0.0),
]


def test_every_choice_of_a_configuration_is_among_them():
    keys = known_keys()
    assert {each.loss for each in OBJECTIVES} == set(keys["train.loss_type"].metadata["choices"])
    assert {each.scale for each in OBJECTIVES} == set(keys["train.scale_rewards"].metadata["choices"])
    levels, modes = (keys[f"train.importance_{what}"].metadata["choices"] for what in ("level", "mode"))
    wanted = {f"{level}_{mode}" for level in levels if level != "none" for mode in modes}
    assert {each.importance for each in OBJECTIVES} == wanted


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda each: "-".join(map(str, vars(each).values())))
def test_loss_and_gradient_are_the_formulas(trained, monkeypatch, objective):
    episodes, play = [], trained.rollout

    def rollout(prompts):
        trained.use_vllm = False  # the episodes themselves come from transformers
        made = play(prompts)
        trained.use_vllm = True
        for off, logprobs, mask in zip(SAMPLER_OFF, made["logprobs"], made["env_mask"], strict=True):
            logprobs[:] = [value - off * written for value, written in zip(logprobs, mask, strict=True)]
        episodes.extend(zip(*(made[k] for k in ("prompt_ids", "completion_ids", "logprobs", "env_mask")), strict=True))
        return made

    # The ratio to the sampler is TRL's for vLLM; the weights are where a colocated engine would have them.
    monkeypatch.setattr(trained, "rollout", rollout)
    monkeypatch.setattr(trained, "use_vllm", True)
    monkeypatch.setattr(trained, "_last_loaded_step", trained.state.global_step, raising=False)
    monkeypatch.setattr(trained, "reward_funcs", [lambda prompts, completions, **_: REWARDS])
    monkeypatch.setattr(trained, "loss_type", objective.loss)
    monkeypatch.setattr(trained, "scale_rewards", objective.scale)
    monkeypatch.setattr(trained, "vllm_importance_sampling_mode", objective.importance)
    monkeypatch.setattr(trained, "beta", objective.beta)
    monkeypatch.setattr(trained.args, "use_bias_correction_kl", objective.corrected)
    batch = trained._generate_and_score_completions([{"prompt": index} for index in ("0", "0", "1", "1")])
    shift = torch.zeros_like(batch["old_per_token_logps"])
    shift[:, ::3], shift[:, 1::3] = OLD_OFF, -OLD_OFF
    batch["old_per_token_logps"] = batch["old_per_token_logps"] - shift

    model = trained.model
    model.zero_grad()
    loss = torch.tensor(0.0)
    for rows in PASSES:  # as gradient accumulation makes them
        passed = {k: v[rows] if isinstance(v, torch.Tensor) and v.dim() else v for k, v in batch.items()}
        part = trained._compute_loss(model, passed)
        part.backward()
        loss += part.detach()
    gradient = {name: p.grad.clone() for name, p in model.named_parameters()}

    model.zero_grad()
    total, ratios, clipped = by_the_formula(trained, episodes, shift, objective)
    total.backward()
    assert ratios[0] > 3.0 and all(0.5 < ratio < 2.0 for ratio in ratios[1:]) and clipped > 0
    assert loss.item() == pytest.approx(total.item(), rel=1e-4)
    for name, parameter in model.named_parameters():
        assert torch.allclose(gradient[name], parameter.grad, rtol=1e-3, atol=1e-7), name
    assert max(grad.abs().max().item() for grad in gradient.values()) > 1e-5


def by_the_formula(trained, episodes, shift, objective):
    """The loss of the four episodes, their ratios to the sampler before any cap, and how many tokens are clipped."""
    rewards = torch.tensor(REWARDS)
    spread = {"none": 1.0, "batch": rewards.std() + 1e-4}
    sums, counts, ratios, clipped = [], [], [], 0
    for number, (prompt, completion, sampled, written) in enumerate(episodes):
        group = rewards[number // 2 * 2 : number // 2 * 2 + 2]
        advantage = (rewards[number] - group.mean()) / spread.get(objective.scale, group.std() + 1e-4)
        now = log_probs(trained.model, prompt, completion)
        with torch.no_grad():
            reference = log_probs(trained.ref_model, prompt, completion)
        mask = torch.tensor(written, dtype=torch.bool)
        gaps = (now.detach() - torch.tensor(sampled)) * mask
        ratios.append(math.exp(gaps.sum().item()))
        weights = gaps.exp() if objective.importance.startswith("token") else gaps.sum().exp().expand(len(gaps))
        cut = objective.importance.endswith("truncate")
        weights = weights.clamp(max=3.0) if cut else torch.where(weights > 3.0, 0.0, weights)
        old = now.detach() - shift[number, : len(completion)]
        summed = torch.tensor(0.0)
        for token in mask.nonzero().flatten().tolist():
            ratio = (now[token] - old[token]).exp()
            clip = ratio.clamp(0.8, 1.28)
            clipped += bool(ratio * advantage > clip * advantage)
            d = reference[token] - now[token]
            divergence = (d.exp() - d - 1) * (ratio if objective.corrected else 1.0)
            summed = summed - weights[token] * torch.min(ratio * advantage, clip * advantage)
            summed = summed + objective.beta * divergence
        sums.append(summed)
        counts.append(int(mask.sum()))
    if objective.loss == "dr_grpo":
        total = sum(sums) / (len(sums) * 1_024)
    elif objective.loss == "dapo":
        total = sum(sums) / sum(counts)
    elif objective.loss == "grpo":
        total = sum(one / count for one, count in zip(sums, counts, strict=True)) / len(sums)
    else:  # bnpo: every pass by its own tokens
        total = sum(sum(sums[rows]) / sum(counts[rows]) for rows in PASSES) / len(PASSES)
    return total, ratios, clipped
