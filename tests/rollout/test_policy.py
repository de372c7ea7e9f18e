"""Policies on disk: what a path means, and full vision-language checkpoints of which the language model plays."""

from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerBase, Qwen3_5ForCausalLM, Qwen3_5ForConditionalGeneration
from trl.trainer.utils import add_fused_lm_head

from sqale_grpo.env.episode import Episode, EpisodeLimits
from sqale_grpo.env.prompts import load_prompts
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.rollout.chat import chat_frame
from sqale_grpo.rollout.lockstep import play
from sqale_grpo.rollout.policy import load_policy, load_tokenizer, resolve_policy
from sqale_grpo.rollout.sampling import Sampling
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.keys import ModelConfig
from sqale_grpo.settings.seal import COMPLETE
from sqale_grpo.train.log_probs import written_log_probs
from tests.conftest import ROOT
from tests.helpers.checkpoints import tiny_text_only, tiny_vision_language

FULL = ModelConfig(weights_dtype="float32")


@pytest.fixture(scope="module")
def vision(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vision_language(tmp_path_factory.mktemp("full"))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_text_only(tmp_path_factory.mktemp("text"))


def test_a_path_is_a_run_a_checkpoint_a_model_or_a_name(tmp_path: Path, text: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").touch()
    with pytest.raises(ConfigError, match="no complete checkpoint yet"):
        resolve_policy(run)
    for number in (5, 10):
        (run / f"checkpoint-{number}").mkdir()
        (run / f"checkpoint-{number}" / "config.json").touch()
    (run / "checkpoint-5" / COMPLETE).touch()
    assert resolve_policy(run) == resolve_policy(run / "checkpoint-5") == run / "checkpoint-5"
    with pytest.raises(ConfigError, match=r"checkpoint-10 was cut off .* name the run's folder"):
        resolve_policy(str(run / "checkpoint-10"))
    assert resolve_policy(text) == text
    assert resolve_policy("Qwen/Qwen3.5-2B") == "Qwen/Qwen3.5-2B"
    with pytest.raises(ConfigError, match="there is no folder"):
        resolve_policy(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="neither config.json nor adapter_config.json"):
        resolve_policy(tmp_path)


def test_a_full_checkpoint_keeps_its_class_and_trains_its_language_model_alone(vision: Path) -> None:
    policy = load_policy(FULL, vision)
    assert type(policy) is Qwen3_5ForConditionalGeneration
    frozen = {name for name, parameter in policy.named_parameters() if not parameter.requires_grad}
    assert frozen == {name for name in load_file(vision / "model.safetensors") if name.startswith("model.visual.")}
    assert frozen
    open_tower = load_policy(ModelConfig(weights_dtype="bfloat16", freeze_vision=False), vision)
    assert all(parameter.requires_grad and parameter.dtype == torch.bfloat16 for parameter in open_tower.parameters())


def test_a_text_only_checkpoint_trains_whole(text: Path) -> None:
    policy = load_policy(FULL, text)
    assert type(policy) is Qwen3_5ForCausalLM and all(parameter.requires_grad for parameter in policy.parameters())


def test_adapters_are_merged_into_the_model_that_they_name(text: Path, tmp_path: Path) -> None:
    policy = get_peft_model(
        load_policy(FULL, text), LoraConfig(r=2, target_modules=["o_proj"], init_lora_weights=False)
    )
    policy.save_pretrained(tmp_path)
    merged, base = load_policy(FULL, tmp_path), load_policy(FULL, text)
    assert type(merged) is Qwen3_5ForCausalLM
    name = "model.layers.3.self_attn.o_proj.weight"
    delta = policy.base_model.model.model.layers[3].self_attn.o_proj.get_delta_weight("default")
    assert delta.abs().max() > 0.01
    assert torch.allclose(merged.get_parameter(name), base.get_parameter(name) + delta, atol=1e-6)


def test_what_cannot_be_loaded_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for load in (lambda path: load_policy(FULL, path), load_tokenizer):
        with pytest.raises(ConfigError, match=r"cannot be loaded \(.*\); name a folder") as error:
            load(tmp_path)
        assert "\n" not in str(error.value)


def forward_logps(
    policy: torch.nn.Module, tokenizer: PreTrainedTokenizerBase, played: list
) -> tuple[torch.Tensor, torch.Tensor]:
    """The trainer's log-probabilities of the played episodes, padded as TRL pads, and where they count."""
    width, room = (max(len(getattr(t, part)) for t in played) for part in ("prompt_ids", "completion_ids"))
    ids = torch.full((len(played), width + room), tokenizer.pad_token_id)
    mask, written = torch.zeros_like(ids), torch.zeros(len(played), room, dtype=torch.long)
    for row, tokens in enumerate(played):
        start, end = width - len(tokens.prompt_ids), width + len(tokens.completion_ids)
        ids[row, start:end] = torch.tensor(tokens.prompt_ids + tokens.completion_ids)
        mask[row, start:end] = 1
        written[row, : end - width] = torch.tensor(tokens.env_mask)
    add_fused_lm_head(policy)
    with torch.no_grad():
        logps, _ = written_log_probs(policy, ids, mask, written, 4, torch.no_grad)
    return logps, written


@pytest.mark.parametrize("kind", ["vision", "text"])
def test_rollout_and_training_agree_on_the_language_model(kind: str, request, shop_database: Path, pool) -> None:
    """Left padding, rotary positions in three sections, both kinds of layers: one number for each written token."""
    folder = request.getfixturevalue(kind)
    policy, tokenizer = load_policy(FULL, folder), load_tokenizer(folder)
    prompts = load_prompts(ROOT / "configs" / "prompts" / "demo.json")
    questions = ["How many shops?", "What do the shops in oslo sell in all, and since when do they?", "Which cities?"]
    with Sandbox(shop_database) as sandbox:
        made = [Episode(q, sandbox, EpisodeLimits(tool_turns=2), prompts=prompts) for q in questions * 2]
        sampling = Sampling(temperature=1.0, max_turn_tokens=12, max_episode_tokens=4_000)
        played = play(policy, chat_frame(tokenizer), made, list(range(6)), sampling, pool)
    logps, written = forward_logps(policy, tokenizer, played)
    assert len({len(tokens.prompt_ids) for tokens in played}) > 1
    for row, tokens in enumerate(played):
        got = torch.tensor(tokens.logprobs)[torch.tensor(tokens.env_mask) > 0]
        assert torch.allclose(got, logps[row][written[row] > 0], atol=1e-4)


def test_both_classes_play_the_same_episodes_from_one_checkpoint(vision: Path, shop_database: Path, pool) -> None:
    tokenizer = load_tokenizer(vision)
    prompts = load_prompts(ROOT / "configs" / "prompts" / "demo.json")
    completions = []
    for policy in (load_policy(FULL, vision), Qwen3_5ForCausalLM.from_pretrained(vision, dtype=torch.float32)):
        with Sandbox(shop_database) as sandbox:
            made = [Episode("How many shops?", sandbox, EpisodeLimits(tool_turns=1), prompts=prompts)]
            sampling = Sampling(temperature=1.0, max_turn_tokens=12, max_episode_tokens=4_000)
            completions.append(play(policy, chat_frame(tokenizer), made, [3], sampling, pool)[0].completion_ids)
    assert completions[0] == completions[1]
