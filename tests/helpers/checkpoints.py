"""Small checkpoints on disk in the layouts that published ones have, with random weights."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoTokenizer,
    PreTrainedTokenizerBase,
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5TextConfig,
)

from sqale_grpo.demo.model import train_tokenizer

VISION_TOKENS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
WORDS = (
    'system user assistant SELECT count(*) FROM shops WHERE city = \'oslo\' {"tool": "run_query", "args": {"sql": "'
    ' {"tool": "list_tables", "args": {}} {"tool": "submit_sql", "args": {"sql": "SELECT 1"}} Tool result:'
)
VOCABULARY = 512  # rows of the embedding; the tokenizer uses fewer, as in published checkpoints
PIXELS = {"shortest_edge": 32 * 32, "longest_edge": 64 * 64}
IMAGES = {
    "image_processor_type": "Qwen2VLImageProcessorFast",
    "patch_size": 16,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "size": PIXELS,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "processor_class": "Qwen3VLProcessor",
}


def tiny_vision_language(folder: Path, tokenizer_source: str | Path | None = None, seed: int = 5) -> Path:
    """A whole ``Qwen3_5ForConditionalGeneration`` checkpoint of 0.7 M parameters in ``folder``, which is returned.

    Language model (3 linear layers and 1 full one), vision tower and ``mtp.*`` tensors in bfloat16, generation config,
    preprocessor configs, and a tokenizer with a chat template: that of ``tokenizer_source``, else a byte-level one of
    its own. Shapes are such that vLLM's CPU build takes them: linear heads of 128, ``mrope_section`` filling half of
    the rotary dimensions.
    """
    tokenizer = _tokenizer(tokenizer_source)
    torch.manual_seed(seed)
    language = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**_text_sizes(tokenizer)))
    return _with_vision_tower(language, tokenizer, folder)


def with_vision_tower(language: Path, folder: Path) -> Path:
    """The same around the language model of a ``Qwen3_5ForCausalLM`` checkpoint, so that it plays as that one does."""
    tokenizer = _tokenizer(language)
    model = Qwen3_5ForCausalLM.from_pretrained(language, dtype=torch.float32)
    torch.manual_seed(5)
    model.resize_token_embeddings(len(tokenizer))
    return _with_vision_tower(model, tokenizer, folder)


def _with_vision_tower(language: Qwen3_5ForCausalLM, tokenizer: PreTrainedTokenizerBase, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = language.config.to_dict()
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "in_channels": 3,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": text["hidden_size"],
        "num_position_embeddings": 16,
    }
    ids = dict(zip(VISION_TOKENS, tokenizer.convert_tokens_to_ids(VISION_TOKENS), strict=True))
    config = Qwen3_5Config(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )
    full = Qwen3_5ForConditionalGeneration(config)
    full.model.language_model.load_state_dict(language.model.state_dict())
    _save(full.to(torch.bfloat16), tokenizer, folder)
    path = folder / "model.safetensors"
    save_file({**load_file(path), **_mtp_tensors(text)}, path, metadata={"format": "pt"})
    (folder / "preprocessor_config.json").write_text(json.dumps(IMAGES, indent=2))
    videos = {**IMAGES, "video_processor_type": "Qwen3VLVideoProcessor"}
    del videos["image_processor_type"]
    (folder / "video_preprocessor_config.json").write_text(json.dumps(videos, indent=2))
    return folder


def tiny_text_only(folder: Path, tokenizer_source: str | Path | None = None, seed: int = 5) -> Path:
    """The same language model as a ``Qwen3_5ForCausalLM`` checkpoint, without vision tower and ``mtp.*``."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(tokenizer_source)
    torch.manual_seed(seed)
    _save(Qwen3_5ForCausalLM(Qwen3_5TextConfig(**_text_sizes(tokenizer))).to(torch.bfloat16), tokenizer, folder)
    return folder


def _tokenizer(source: str | Path | None) -> PreTrainedTokenizerBase:
    tokenizer = train_tokenizer([WORDS] * 4, 420) if source is None else AutoTokenizer.from_pretrained(source)
    tokenizer.add_special_tokens({"additional_special_tokens": VISION_TOKENS})
    return tokenizer


def _text_sizes(tokenizer: PreTrainedTokenizerBase) -> dict:
    return {
        "vocab_size": max(VOCABULARY, -(-len(tokenizer) // 64) * 64),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 4096,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "tie_word_embeddings": True,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
        "initializer_range": 0.1,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000_000,
            "partial_rotary_factor": 0.25,
            "mrope_section": [3, 3, 2],
            "mrope_interleaved": True,
        },
    }


def _save(model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _mtp_tensors(text: dict) -> dict[str, torch.Tensor]:
    """The multi-token-prediction block of the published checkpoints: one full-attention layer behind a projection."""
    hidden, wide, head = text["hidden_size"], text["intermediate_size"], text["head_dim"]
    query, key = text["num_attention_heads"] * head, text["num_key_value_heads"] * head
    layer = "mtp.layers.0"
    shapes = {
        "mtp.fc.weight": (hidden, 2 * hidden),
        "mtp.norm.weight": (hidden,),
        "mtp.pre_fc_norm_embedding.weight": (hidden,),
        "mtp.pre_fc_norm_hidden.weight": (hidden,),
        f"{layer}.input_layernorm.weight": (hidden,),
        f"{layer}.post_attention_layernorm.weight": (hidden,),
        f"{layer}.self_attn.q_norm.weight": (head,),
        f"{layer}.self_attn.k_norm.weight": (head,),
        f"{layer}.self_attn.q_proj.weight": (2 * query, hidden),  # queries and their output gates
        f"{layer}.self_attn.k_proj.weight": (key, hidden),
        f"{layer}.self_attn.v_proj.weight": (key, hidden),
        f"{layer}.self_attn.o_proj.weight": (hidden, query),
        f"{layer}.mlp.gate_proj.weight": (wide, hidden),
        f"{layer}.mlp.up_proj.weight": (wide, hidden),
        f"{layer}.mlp.down_proj.weight": (hidden, wide),
    }
    generator = torch.Generator().manual_seed(7)
    return {name: torch.randn(shape, generator=generator).to(torch.bfloat16) for name, shape in shapes.items()}
