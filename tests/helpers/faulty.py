"""``sqale-grpo train`` with a fault: the loss of some updates is no number.

``python -m tests.helpers.faulty UPDATE[,UPDATE...] WORDS...``; with several processes the last one alone has it.
"""

import sys

import torch

from sqale_grpo.commands import main
from sqale_grpo.settings.shape import launched_processes, process_index
from sqale_grpo.train.trainer import SqlGRPOTrainer

healthy = SqlGRPOTrainer._compute_loss


def break_at(updates: set[int], value: float = float("nan")) -> None:
    """Multiply the loss of the ``updates``' first pass by ``value`` from now on."""

    def compute(self: SqlGRPOTrainer, model: torch.nn.Module, inputs: dict) -> torch.Tensor:
        loss = healthy(self, model, inputs)
        last = process_index() == launched_processes() - 1
        return loss * value if last and self.state.global_step in updates else loss

    SqlGRPOTrainer._compute_loss = compute


if __name__ == "__main__":
    break_at({int(update) for update in sys.argv[1].split(",")})
    sys.exit(main(["train", *sys.argv[2:]]))
