"""The small transformer of the field's problems."""

import pytest
import torch

from attnsweep.workloads.field.transformer import Transformer


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("layer_norm_eps", [None, 1e-3])
def test_the_logits_of_the_last_token_are_those_of_the_whole_forward_pass(
    layer_norm_eps: float | None, is_causal: bool
) -> None:
    module = Transformer(
        5, 4, d_model=8, n_blocks=2, n_heads=2, d_ffn=16, layer_norm_eps=layer_norm_eps, is_causal=is_causal
    ).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    token_BT = torch.randint(5, (3, 4))
    assert torch.allclose(module.last(token_BT), module(token_BT)[:, -1], rtol=1e-12)
