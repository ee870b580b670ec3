"""The GPT's sizes, what its logits depend on, generation with a cache, and what low-rank updates train."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from attnsweep.reproduction.boue.counts import Kept, next_logits
from attnsweep.workloads.gpt.model import GPT, GPTShape, freeze_base
from tests.workloads.gpt.models import N_WORDS, random_batch, random_gpt

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"n_blocks": 2},
    "merged, tied": {"qk": "merged", "n_heads": 2, "tied": True, "positions": "sinusoidal", "n_blocks": 2},
    "log n": {"attention_scale": "log_n_inv_sqrt_d", "qk_rank": 3, "positions": "none"},
}


@pytest.mark.parametrize("name", SHAPES)
def test_generation_with_a_cache_equals_the_full_pass(name: str) -> None:
    model, token_BT = random_gpt(**SHAPES[name]), random_batch()["token"]
    kept: list[Kept] = []
    with torch.no_grad():
        by_step = torch.stack([next_logits(model, token_B, kept) for token_B in token_BT.T], 1)
        torch.testing.assert_close(by_step, model(token_BT), rtol=0, atol=1e-12)


def test_logits_do_not_depend_on_later_tokens() -> None:
    model, token_BT = random_gpt(n_blocks=2), random_batch()["token"]
    changed = token_BT.clone()
    changed[:, 3] = (changed[:, 3] + 1) % N_WORDS
    with torch.no_grad():
        before, after = model(token_BT), model(changed)
    assert torch.equal(before[:, :3], after[:, :3])
    assert (before[:, 3:] != after[:, 3:]).all()


def test_without_positions_and_mask_the_order_does_not_matter() -> None:
    model, token_BT = random_gpt(positions="none", is_causal=False), random_batch()["token"]
    order_T = torch.tensor([4, 2, 0, 1, 3])
    with torch.no_grad():
        torch.testing.assert_close(model(token_BT[:, order_T]), model(token_BT)[:, order_T], rtol=0, atol=1e-14)


def test_only_low_rank_updates_are_trained() -> None:
    shape = GPTShape(n_words=5, n_tokens=4, d_model=6, n_blocks=2, lora_rank=2)
    model, whole = GPT(shape), GPT(replace(shape, lora_rank=None))
    names = {name for name, _ in model.named_parameters()}
    freeze_base(model)
    left = {name for name, _ in model.named_parameters()}
    assert left == {name for name in names if ".down." in name or ".up." in name}
    assert {name for name, _ in whole.named_parameters()} == names - left
    assert names - left <= {name for name, _ in model.named_buffers()}
    assert sum(value.numel() for value in model.parameters()) == 2 * 18 * 2 * 6 + 2 * (6 + 5)
