"""The recipe's objective: the real trainer's loss and gradient against the formula, written out episode by episode.

loss = sum over the update's episodes and the tokens that the policy wrote of
       [ -w min(p A, clip(p, 0.8, 1.28) A) + 0.005 (exp(d) - d - 1) ] / (episodes x 1,024)
with p the policy's ratio to itself at sampling time, A the reward minus its group's mean, d the log-probability of
the reference minus the policy's, and w the ratio of trainer to sampler over the whole episode, at most 3.
"""

import math

import pytest
import torch

from sqale_grpo.settings.load import load_config, load_words
from sqale_grpo.train.run import run
from tests.conftest import ROOT

REWARDS = [3.0, 0.5, 1.25, 1.0]  # two groups of two
# By how much the sampler's log-probability of each token differs: one episode's ratio is far over the cap.
SAMPLER_OFF = [0.4, -0.003, 0.01, 0.0]
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
    assert (train.importance_level, train.importance_mode, train.importance_cap) == ("sequence", "truncate", 3.0)


def test_loss_and_gradient_are_the_formulas(trained, monkeypatch):
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
    batch = trained._generate_and_score_completions([{"prompt": index} for index in ("0", "0", "1", "1")])
    shift = torch.zeros_like(batch["old_per_token_logps"])
    shift[:, ::3], shift[:, 1::3] = OLD_OFF, -OLD_OFF
    batch["old_per_token_logps"] = batch["old_per_token_logps"] - shift

    model = trained.model
    model.zero_grad()
    loss = torch.tensor(0.0)
    for rows in (slice(0, 2), slice(2, 4)):  # two passes, as gradient accumulation makes them
        passed = {k: v[rows] if isinstance(v, torch.Tensor) and v.dim() else v for k, v in batch.items()}
        part = trained._compute_loss(model, passed)
        part.backward()
        loss += part.detach()
    gradient = {name: p.grad.clone() for name, p in model.named_parameters()}

    model.zero_grad()
    total, ratios, clipped = torch.tensor(0.0), [], 0
    for number, (prompt, completion, sampled, written) in enumerate(episodes):
        group = REWARDS[number // 2 * 2 : number // 2 * 2 + 2]
        advantage = REWARDS[number] - sum(group) / 2
        now = log_probs(model, prompt, completion)
        with torch.no_grad():
            reference = log_probs(trained.ref_model, prompt, completion)
        mask = torch.tensor(written, dtype=torch.bool)
        before_shift = now.detach()
        gap = (before_shift - torch.tensor(sampled))[mask].sum().item()
        weight = min(math.exp(gap), 3.0)
        ratios.append(math.exp(gap))
        old = before_shift - shift[number, : len(completion)]
        for token in mask.nonzero().flatten().tolist():
            ratio = (now[token] - old[token]).exp()
            clip = ratio.clamp(0.8, 1.28)
            clipped += bool(ratio * advantage > clip * advantage)
            d = reference[token] - now[token]
            total = total - weight * torch.min(ratio * advantage, clip * advantage) + 0.005 * (d.exp() - d - 1)
    total = total / (4 * 1_024)
    total.backward()

    assert ratios[0] > 3.0 and all(0.5 < ratio < 2.0 for ratio in ratios[1:]) and clipped > 0
    assert loss.item() == pytest.approx(total.item(), rel=1e-4)
    for name, parameter in model.named_parameters():
        assert torch.allclose(gradient[name], parameter.grad, rtol=1e-3, atol=1e-7), name
    assert max(grad.abs().max().item() for grad in gradient.values()) > 1e-5
