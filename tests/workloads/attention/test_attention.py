"""The attention block beside PyTorch's own, its mask, its two forms of the logits, and what lanes may differ in.

Axes: B sequence, T token, D model.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnsweep import Attention, Embedding, FeedForward, Sight
from attnsweep.workloads.errors import SpecError
from tests.refusals import refused


def drawn(module: nn.Module, seed: int = 0) -> Any:
    """The module in float64 with random parameters."""
    generator = torch.Generator().manual_seed(seed)
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2)
    return module


def tokens(B: int, T: int, D: int) -> Tensor:
    return torch.randn(B, T, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_it_is_pytorchs_attention() -> None:
    ours, theirs = drawn(Attention(6, 2)), nn.MultiheadAttention(6, 2, batch_first=True).double()
    projections = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([each.weight for each in projections]))
        theirs.in_proj_bias.copy_(torch.cat([each.bias for each in projections]))
        theirs.out_proj.load_state_dict(ours.out.state_dict())
    x = tokens(3, 5, 6)
    hidden = ~torch.ones(5, 5, dtype=torch.bool).tril()
    expected = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
    torch.testing.assert_close(ours(x, Sight.causal(x)), expected, rtol=0, atol=1e-14)


def test_merged_is_the_product_of_the_factors() -> None:
    D, H = 4, 2
    factored, merged = drawn(Attention(D, H, qk_rank=D)), drawn(Attention(D, H, qk="merged"))
    query, key = (each.view(H, D, D) for each in (factored.query.weight, factored.key.weight))
    with torch.no_grad():
        # Both scales are 1 / sqrt(d): of the rank, and of a head's width.
        ratio = math.sqrt((D // H) / D)
        merged.query.weight.copy_(ratio * (key.mT @ query).flatten(0, 1))
        merged.query.bias.copy_(ratio * (key.mT @ factored.query.bias.view(H, D, 1)).flatten())
        for name in ("value", "out"):
            getattr(merged, name).load_state_dict(getattr(factored, name).state_dict())
    x = tokens(3, 5, D)
    torch.testing.assert_close(merged(x, Sight.causal(x)), factored(x, Sight.causal(x)), rtol=0, atol=1e-13)
    assert merged.key is None


@pytest.mark.parametrize("n_rows", [5, 100])
def test_an_embedding_looks_up_rows(n_rows: int) -> None:
    table, index = drawn(Embedding(n_rows, 3)), torch.tensor([[0, 4], [2, 2]])
    assert torch.equal(table(index), table.weight[index])


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
def test_activations_do_not_depend_on_the_vector_that_they_are_in(activation: str) -> None:
    """For rows of a width that fills no vectors: the remainder of a tensor would round differently."""
    ffn = drawn(FeedForward(5, 7, activation=activation)).float()
    x = tokens(1, 9, 5).float()[0]
    expected: Any = {"relu": torch.relu, "gelu": nn.GELU(), "gelu_tanh": nn.GELU("tanh")}[activation]
    hidden = ffn.first(x)
    torch.testing.assert_close(ffn(x), ffn.second(expected(hidden)))


@pytest.mark.parametrize(
    ("values", "subject"),
    [({"n_heads": 3}, "n_heads"), ({"qk": "split"}, "qk"), ({"qk": "merged", "qk_rank": 2}, "qk_rank")],
)
def test_what_does_not_fit_is_refused(values: dict[str, Any], subject: str) -> None:
    with refused(subject, SpecError):
        Attention(4, **values)
