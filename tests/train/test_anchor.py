"""The reference anchor: what plain TRL loses on a resume, and weights that FSDP2 has sharded over two processes."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from datasets import Dataset
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing import start_processes
from transformers import PreTrainedTokenizerBase, Qwen3_5ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from sqale_grpo.train.anchor import copy_weights, load_reference, save_reference
from sqale_grpo.train.sharded import unsharded


def plain_trl(policy: Path, tokenizer: PreTrainedTokenizerBase, out: Path, steps: int) -> GRPOTrainer:
    """TRL's own trainer with its own anchor after every 2 updates; rewards differ with the text."""
    arguments = GRPOConfig(
        str(out),
        max_steps=steps,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=6,
        learning_rate=0.05,
        lr_scheduler_type="constant",
        beta=0.1,
        sync_ref_model=True,
        ref_model_mixup_alpha=1.0,
        ref_model_sync_steps=2,
        save_steps=1,
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    questions = Dataset.from_list([{"prompt": "SELECT"}, {"prompt": "shops"}] * 4)

    def letters(completions: list[str], **_: object) -> list[float]:
        return [float(len(set(text))) for text in completions]

    return GRPOTrainer(str(policy), letters, arguments, train_dataset=questions, processing_class=tokenizer)


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_plain_trl_loses_an_anchored_reference_on_resume(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase, random_policy: Qwen3_5ForCausalLM
) -> None:
    """Why the anchor is ours; that a resume of ours keeps it is shown by the killed runs of test_training.py."""
    policy, out = tmp_path / "policy", tmp_path / "out"
    random_policy.save_pretrained(policy)
    tokenizer.save_pretrained(policy)
    first = plain_trl(policy, tokenizer, out, 2)
    first.train()
    assert same(first.ref_model, first.model) and not same(first.ref_model, random_policy), "anchored after 2 updates"
    resumed = plain_trl(policy, tokenizer, out, 3)
    resumed.train(resume_from_checkpoint=str(out / "checkpoint-2"))
    assert same(resumed.ref_model, random_policy), "TRL keeps it now: the project's own part may go"


def net(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))


def sharded(seed: int) -> torch.nn.Module:
    model = net(seed)
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    return model


def on_each(rank: int, folder: Path) -> None:
    """What two processes of an FSDP2 launch do with policy and reference; gloo carries it."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    policy, reference, later = (sharded(seed) for seed in (1, 2, 3))
    assert policy[0].weight.to_local().shape[0] < 5, "each process holds a part"
    data = torch.arange(12.0).reshape(2, 6) / 10
    with torch.no_grad():
        reference(data)  # leaves the root whole, as the reference's pass in an update does
        copy_weights(policy, reference)
        torch.testing.assert_close(reference(data), net(1)(data))
        save_reference(reference, folder, is_main=rank == 0)
        dist.barrier()
        load_reference(later, folder)
        torch.testing.assert_close(later(data), net(1)(data))
        with unsharded(policy):
            # A rollout: one process decodes longer than the other, and nobody waits.
            for _ in range(2 + 3 * rank):
                torch.testing.assert_close(policy(data), net(1)(data))
    assert policy[0].weight.to_local().shape[0] < 5
    policy(data).sum().backward()  # and training goes on
    assert policy[0].weight.grad is not None
    dist.destroy_process_group()


def test_weights_that_fsdp2_shards_are_copied_saved_and_restored(tmp_path: Path) -> None:
    start_processes(on_each, args=(tmp_path,), nprocs=2, start_method="fork")
    assert (tmp_path / "reference.safetensors").exists()


def test_a_checkpoint_without_the_reference_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no reference.safetensors"):
        load_reference(net(1), tmp_path)
    save_reference(torch.nn.Linear(2, 2), tmp_path, is_main=True)
    with pytest.raises(ValueError, match="is only on one side"):
        load_reference(net(1), tmp_path)
