"""The gradients by hand beside autograd's."""

import math
from typing import Any

import pytest
import torch

from attnsweep.workloads.gpt.backward import gradients_by_hand
from attnsweep.workloads.gpt.workload import GPTWorkload
from tests.workloads.gpt.models import random_batch, random_gpt

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
