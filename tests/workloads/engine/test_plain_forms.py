"""The plain forms compute what PyTorch's fused operations do, and their gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pack_padded_sequence

from attnsweep.workloads.engine.engine_forms import without_dropout
from attnsweep.workloads.errors import SpecError

X = torch.linspace(-1, 1, 60, dtype=torch.float64).view(3, 5, 4)
SEEN = torch.ones(5, 5, dtype=torch.bool).tril(-1)
"""The first token sees none."""


def _attended(**options: Any) -> Callable[[], Tensor]:
    q = X.view(3, 5, 2, 2).transpose(1, 2)
    return lambda: scaled_dot_product_attention(q.sin(), q, q.cos(), **options)


def _of_groups() -> Tensor:
    q, k, v = (X.view(3, 1, 5, 4).expand(3, n_heads, 5, 4) for n_heads in (4, 2, 2))
    return scaled_dot_product_attention(q.sin(), k, v.cos(), enable_gqa=True)


ATTENTION = {
    "plain": _attended(),
    "causal": _attended(is_causal=True),
    "scaled": _attended(scale=3.0),
    "a mask": _attended(attn_mask=SEEN),
    "a sum": _attended(attn_mask=torch.zeros(5, 5, dtype=torch.float64).masked_fill(~SEEN, -torch.inf)),
    "groups": _of_groups,
}


@pytest.mark.parametrize("attend", ATTENTION.values(), ids=ATTENTION)
def test_attention(attend: Callable[[], Tensor]) -> None:
    with without_dropout() as forms:
        found = attend()
    assert forms.replaced == {"scaled_dot_product_attention"}
    torch.testing.assert_close(found, attend(), rtol=1e-12, atol=1e-12)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "RNN": lambda: nn.RNN(4, 3, 2),
    "RNN, relu": lambda: nn.RNN(4, 3, nonlinearity="relu", bias=False),
    "GRU": lambda: nn.GRU(4, 3, 2, batch_first=True, bidirectional=True),
    "LSTM": lambda: nn.LSTM(4, 3, 2, bidirectional=True, dropout=0.3),
    "LSTM without biases": lambda: nn.LSTM(4, 3, bias=False, batch_first=True),
    "LSTM, projected": lambda: nn.LSTM(4, 3, 2, proj_size=2),
    "GRUCell": lambda: nn.GRUCell(4, 3),
    "LSTMCell": lambda: nn.LSTMCell(4, 3, bias=False),
    "MultiheadAttention": lambda: nn.MultiheadAttention(4, 2, dropout=0.3),
    "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(4, 2, 6, batch_first=True),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("build", LAYERS.values(), ids=LAYERS)
def test_layers(build: Callable[[], nn.Module]) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = build().double()
    x = X[0] if "Cell" in type(layer).__name__ else X
    given = (x,) * 3 if isinstance(layer, nn.MultiheadAttention) else (x,)

    def results() -> list[Tensor]:
        found = layer(*given)
        flat = (
            [found]
            if isinstance(found, Tensor)
            else [found[0], *(found[1] if isinstance(found[1], tuple) else found[1:])]
        )
        return [*flat, *torch.autograd.grad(flat[0].square().sum(), list(layer.parameters()))]

    with without_dropout() as forms:
        plain = results()
    assert forms.replaced
    layer.eval()
    for one, other in zip(plain, results(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_packed_sequences_are_refused() -> None:
    packed = pack_padded_sequence(torch.ones(3, 2, 4), [3, 2])
    for layer in (nn.LSTM(4, 3), nn.GRU(4, 3)):
        with (
            pytest.raises(
                SpecError, match=r"pack_padded_sequence: got 'packed sequences of several lengths.*pad the sequences"
            ),
            without_dropout(),
        ):
            layer(packed)
