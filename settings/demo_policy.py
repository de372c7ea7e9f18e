"""The keys of the demo's policy: how `sqale-grpo demo build-policy` makes it. No run reads any of them."""

import re
from dataclasses import dataclass

from sqale_grpo.settings.sections import Rule, key


@dataclass
class DemoPolicyConfig:
    """How `sqale-grpo demo build-policy` makes the policy that `model.path=demo` means; a run reads none of it."""

    hidden_size: int = key(64, "ours", "width", low=8)
    layers: str = key("lf", "ours", "l: linear attention (gated delta net), f: full attention, in order")
    heads: int = key(2, "ours", "attention heads of either kind", low=1)
    head_dim: int = key(128, "ours", "width of a full-attention head; under 64 copying is hard to learn", low=8)
    linear_head_dim: int = key(32, "ours", "width of a linear-attention head", low=8)
    vocab_size: int = key(1_200, "ours", "tokens of the byte-pair tokenizer, trained on the train split", low=300)
    copy_loss: float = key(
        0.05, "ours", "first and second stage, recall and copying: until the loss is under this", above=0
    )
    copy_max_steps: int = key(600, "ours", "the same: go on to the next after so many steps at the latest", low=1)
    clean_steps: int = key(3_600, "ours", "third stage: steps on traces that make every look-up", low=2)
    imperfect_steps: int = key(500, "ours", "fourth stage: steps on traces that skip look-ups", low=0)
    careful_traces: int = key(3_000, "ours", "traces of the third stage, one a question", low=1)
    imperfect_traces: int = key(3_000, "ours", "traces of the fourth stage, one a question", low=1)
    max_tables: int | None = key(None, "ours", "most tables of a trace's database; null: sampler.max_tables", low=1)
    look_tables: float = key(0.5, "ours", "fourth stage: probability of looking for the table's name", low=0, high=1)
    look_columns: float = key(0.5, "ours", "fourth stage: probability of looking for the columns", low=0, high=1)
    look_values: float = key(0.4, "ours", "fourth stage: probability of looking for a value", low=0, high=1)
    try_query: float = key(
        0.65, "ours", "fourth stage: probability of running the query before it is submitted", low=0, high=1
    )
    idle: float = key(0.1, "ours", "fourth stage: probability of a call that serves nothing", low=0, high=1)
    muon_rate: float = key(0.01, "ours", "peak learning rate of the warm start for the matrices (Muon)", above=0)
    learning_rate: float = key(0.01, "ours", "the same for the other weights (AdamW)", above=0)
    batch_size: int = key(4, "ours", "traces a step", low=1)
    floor: float = key(0.10, "ours", "equivalent rate under which GRPO is not begun", low=0, high=1)
    seed: int = key(42, "ours", "seed of the policy; apart from the run's, so that runs share one policy", low=0)

    def rules(self, at: str) -> list[Rule]:
        """Of the kinds of layer."""
        known = re.fullmatch(r"[lf]+", self.layers) is not None
        return [("layers", known, f"must be a word of the letters l and f, not {self.layers!r}")]
