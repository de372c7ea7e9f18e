"""The demo policy's parts: a tiny Qwen3.5 (both layer types), and a tokenizer with Qwen's chat layout."""

from collections.abc import Iterable

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3_5ForCausalLM, Qwen3_5TextConfig

from sqale_grpo.settings.demo_policy import DemoPolicyConfig

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n<think>\n' if enable_thinking else "
    "'<|im_start|>assistant\n<think>\n\n</think>\n\n' -}}{%- endif -%}"
)


# SQL's keywords with the spaces around them, then runs of letters, single digits, and runs of the rest.
_PIECES = r" ?[A-Z]{2,}(?: [A-Z]{2,})* ?|[A-Za-z]+|[0-9]|[^A-Za-z0-9]+"


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE over ``texts``.

    Text is split before merging so that a word is the same token after a space, a quote or an underscore: a tiny
    model then copies a name by copying one token.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = CHAT_TEMPLATE
    return fast


def tiny_model(policy: DemoPolicyConfig, tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3_5ForCausalLM:
    """A randomly initialised Qwen3.5 text model of the sizes in ``policy``; the same seed gives the same weights."""
    torch.manual_seed(seed)
    names = {"l": "linear_attention", "f": "full_attention"}
    config = Qwen3_5TextConfig(
        vocab_size=len(tokenizer),
        hidden_size=policy.hidden_size,
        intermediate_size=3 * policy.hidden_size,
        num_hidden_layers=len(policy.layers),
        layer_types=[names[letter] for letter in policy.layers],
        num_attention_heads=policy.heads,
        num_key_value_heads=max(1, policy.heads // 2),
        head_dim=policy.head_dim,
        linear_num_key_heads=max(1, policy.heads // 2),
        linear_num_value_heads=policy.heads,
        linear_key_head_dim=policy.linear_head_dim,
        linear_value_head_dim=policy.linear_head_dim,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return Qwen3_5ForCausalLM(config)
