"""The private names of TRL and transformers that training touches: one table, held against the installed version.

``SqlGRPOTrainer`` is a subclass of ``GRPOTrainer`` and steps into methods that no release note mentions. pyproject.toml
therefore admits one minor version of TRL. Before that bound moves, ``tests/train/test_seams.py`` names every entry that
the new version no longer has, takes other arguments for, or fills in another way.
"""

# Methods that the trainer replaces or wraps: their parameters, and why no public hook will do.
OVERRIDDEN = {
    "_get_train_sampler": (("dataset",), "the curriculum decides which questions an update has"),
    "_generate": (("prompts",), "vLLM gets the weights beforehand, so that their time is known"),
    "_calculate_rewards": (
        ("inputs", "prompts", "completions", "completion_ids_list"),
        "agreement needs the whole group, and a reward function sees the members of its own process",
    ),
    "_generate_and_score_completions": (("inputs",), "the advantages belong to the record of the episodes"),
    "_prepare_inputs": (("generation_batch",), "micro-batches by length instead of at random"),
    "_compute_loss": (("model", "inputs"), "the log-probabilities need the mask of the micro-batch"),
    "_get_per_token_logps_and_entropies": (
        ("model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy"),
        "only tokens that the policy wrote go through the head; arguments for images may follow",
    ),
    "_get_grad_norm": (("model", "grad_norm"), "the run ends before a step whose gradient is no number"),
    "_save_checkpoint": (("model", "trial"), "a checkpoint holds the reference policy, and says when it is whole"),
    "_load_optimizer_and_scheduler": (("checkpoint",), "a resumed run gets the reference policy of its checkpoint"),
}
# Methods and attributes of the trainer that are read or set.
USED = {
    "_get_output_dir": "where the checkpoint lies that was just written",
    "_metrics": "TRL's store of an update's metrics, beside which ours stand",
    "_step": "the micro-batch within the update",
    "_buffered_inputs": "the micro-batches of the update",
    "_last_loaded_step": "the update whose weights vLLM holds",
}
# Attributes of TRL's VLLMGeneration.
GENERATION = {
    "_llm_weights_sleeping": "told that vLLM was sent to sleep, so that it is woken before the next transfer",
    "_iter_named_params": "replaced where there are adapters: TRL merges them into the frozen base and takes them out",
}
# The class that TRL makes its colocated engine of, replaced while it does so: the arguments that we give in its place.
ENGINE = {"LLM": ("seed", "enable_prefix_caching")}
# What `_generate_and_score_completions` returns and `_compute_loss` reads, by key.
BATCH = {
    "advantages": "for the record of the episodes",
    "prompt_mask": "length of an episode",
    "completion_mask": "length of an episode; tokens that count",
    "tool_mask": "1 where the policy wrote the token; TRL makes it of `env_mask`",
    "old_per_token_logps": "the trainer's log-probabilities when the episode was played",
    "sampling_per_token_logps": "vLLM's, of the same tokens",
    "importance_sampling_ratio": "there where TRL corrects for their difference",
}
# The head that TRL puts in a model's place: it projects labelled positions only.
HEAD = {"fused_lm_head": "the argument of forward", "log_probs": "of its output", "entropy": "of its output"}
# Functions below the documented surface, by module.
FUNCTIONS = {"trl.trainer.utils": ("split_tensor_dict",), "trl.models": ("unwrap_model_for_generation",)}
