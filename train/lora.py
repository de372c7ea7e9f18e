"""LoRA: small trained adapters beside frozen weights, with a second, frozen set of them as the reference policy."""

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from train.config import Config
from train.config_check import ConfigError

POLICY_ADAPTER, REFERENCE_ADAPTER = "default", "ref"  # PEFT's name of the first one, TRL's of the reference's
VISION = r".*\.(visual|vision_tower|vision_model)\..*"  # leaves as it came: only the language model trains


def with_adapters(policy: PreTrainedModel, config: Config) -> PreTrainedModel | PeftModel:
    """The policy with fresh adapters of ``model.lora_rank`` on ``model.lora_targets``; itself where the rank is 0.

    Adapters begin as the identity and are kept in float32. The same seed gives the same ones on every process. No
    dropout: the rollout's probabilities must be the trainer's. ConfigError where the policy has no such module.
    """
    model = config.model
    if not model.lora_rank:
        return policy
    lora = LoraConfig(
        r=model.lora_rank,
        lora_alpha=model.lora_alpha,
        target_modules=list(model.lora_targets),
        exclude_modules=VISION,
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(config.seed)
    try:
        return get_peft_model(policy, lora)
    except ValueError as error:
        raise ConfigError(
            f"model.lora_targets={list(model.lora_targets)} fits no module of {type(policy).__name__}; name parts of "
            "its layers, such as q_proj"
        ) from error
