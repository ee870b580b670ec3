"""The GPT: what its logits depend on, generation with a cache, low-rank updates, gradients by hand, identities."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from attnsweep.reproduction.boue.counts import Kept, next_logits
from attnsweep.workloads.engine.contract import Batch, Training
from attnsweep.workloads.gpt import GPTParameters, GPTWorkload
from attnsweep.workloads.gpt.backward import gradients_by_hand
from attnsweep.workloads.gpt.model import GPT, GPTShape, freeze_base
from attnsweep.workloads.testing import defaults

N_WORDS, N_CONTEXT = 7, 6


def random_gpt(seed: int = 0, layer_norm_eps: float = 1e-5, attention_scale: str = "inv_sqrt_d", **sizes: Any) -> GPT:
    """All parameters random, biases and gains too."""
    shape = GPTShape(**{"n_words": N_WORDS, "n_tokens": N_CONTEXT, "d_model": 8, "d_ffn": 9} | sizes)
    model = GPT(shape, layer_norm_eps=layer_norm_eps, attention_scale=attention_scale, lora_scale=1.7).double()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            noise = torch.randn(value.shape, generator=draw, dtype=torch.float64)
            value.copy_(noise / value.shape[-1] ** 0.5 if value.dim() > 1 else value + 0.3 * noise)
    return model


def random_batch(n_sequences: int = 2, n_tokens: int = 5, seed: int = 0) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    token, target = (torch.randint(N_WORDS, (n_sequences, n_tokens), generator=draw) for _ in range(2))
    weight = torch.rand(n_sequences, n_tokens, generator=draw, dtype=torch.float64)
    return {"token": token, "target": target, "weight": weight}


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


CASES: dict[str, dict[str, Any]] = {
    "plain": {"layer_norm_eps": 0.0},
    "gelu, two heads": {"activation": "gelu", "n_heads": 2},
    "tanh, not causal": {"activation": "gelu_tanh", "n_heads": 4, "is_causal": False, "positions": "none"},
    "tied, three blocks": {"tied": True, "n_blocks": 3, "layer_norm_eps": 0.1, "positions": "sinusoidal"},
    "merged": {"qk": "merged", "n_heads": 2, "n_blocks": 2},
    "rank, log n": {"qk_rank": 3, "n_heads": 2, "attention_scale": "log_n_inv_sqrt_d"},
    "lora": {"lora_rank": 2, "n_blocks": 2},
}


@pytest.mark.parametrize("case", CASES)
def test_they_are_those_of_autograd(case: str) -> None:
    model, batch = random_gpt(**CASES[case]), random_batch()
    GPTWorkload().loss(model, batch).backward()
    with torch.no_grad():
        ours = gradients_by_hand(model, batch)
    theirs = {name: value.grad for name, value in model.named_parameters()}
    assert ours.keys() == theirs.keys()
    norm = math.sqrt(sum(value.square().sum().item() for value in theirs.values() if value is not None))
    for name, value in theirs.items():
        assert value is not None, name
        assert (value - ours[name]).abs().max() < 1e-15 * norm, name


MODES: dict[str, dict[str, Any]] = {
    "plain, epsilon 0": {"layer_norm_eps": 0.0, "n_heads": 2, "qk_rank": 3},
    "tied, merged, gelu": {"tied": True, "qk": "merged", "n_heads": 2, "activation": "gelu", "n_blocks": 2},
    "merged, log n": {"qk": "merged", "attention_scale": "log_n_inv_sqrt_d", "positions": "sinusoidal"},
    "low rank": {"lora_rank": 2},
}


def small(**values: Any) -> Training[GPTParameters]:
    return Training(defaults(GPTWorkload(), d_model=8, d_ffn=5, batch_size=3, **values), 1)
