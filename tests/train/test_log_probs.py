"""Log-probabilities in short, sorted passes are those of one plain forward pass."""

from contextlib import nullcontext

import pytest
import torch
from trl.trainer.utils import add_fused_lm_head

from sqale_grpo.demo.model import tiny_model
from sqale_grpo.settings.demo_policy import DemoPolicyConfig
from sqale_grpo.train.log_probs import written_log_probs

LENGTHS = [(5, 9), (2, 3), (7, 1), (4, 12), (3, 6)]  # prompt and completion tokens


@pytest.mark.parametrize("rows", [1, 2, 5, 9])
def test_every_written_token_gets_the_forward_pass_value(tokenizer, rows):
    model = tiny_model(DemoPolicyConfig(hidden_size=32, head_dim=32, linear_head_dim=16), tokenizer, seed=4).eval()
    generator = torch.Generator().manual_seed(1)
    width, room = max(p for p, _ in LENGTHS), max(c for _, c in LENGTHS)
    ids = torch.randint(5, len(tokenizer), (len(LENGTHS), width + room), generator=generator)
    mask, written = torch.zeros_like(ids), torch.zeros(len(LENGTHS), room, dtype=torch.long)
    for row, (prompt, completion) in enumerate(LENGTHS):
        mask[row, width - prompt : width + completion] = 1
        written[row, :completion] = torch.randint(0, 2, (completion,), generator=generator)
        written[row, 0] = 1
    with torch.no_grad():
        expected = []
        for row, (prompt, completion) in enumerate(LENGTHS):
            own = ids[row, width - prompt : width + completion]
            logps = torch.log_softmax(model(input_ids=own[None]).logits[0] / 0.7, -1)
            expected.append(logps[prompt - 1 : -1].gather(1, own[prompt:, None])[:, 0])
        add_fused_lm_head(model, temperature=0.7, outputs=("log_probs", "entropy"))
        got, entropies = written_log_probs(model, ids, mask, written, rows, nullcontext)
    assert got.shape == entropies.shape == written.shape
    for row, (_, completion) in enumerate(LENGTHS):
        kept = written[row, :completion] > 0
        assert torch.allclose(got[row, :completion][kept], expected[row][kept], atol=2e-4)
        assert (entropies[row, :completion][kept] > 0).all()
        assert not got[row][written[row] == 0].any()
