"""Fused operations of PyTorch in their plain form, for those that `vmap` has no rule for.

Axes: T step of a sequence, B sequence, D number of a state; Q query, K key, E number of a head.
"""

import math
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import dropout, linear

from attnsweep.workloads.errors import SpecError

State = tuple[Tensor, ...]
"""Of a recurrent layer: h, and the c of an LSTM."""
Cell = Callable[[Tensor, State, Sequence[Tensor | None]], State]


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """What `scaled_dot_product_attention` computes, by a product, a softmax and a product."""
    if enable_gqa:
        n_groups = query.shape[-3] // key.shape[-3]
        key, value = (each.repeat_interleave(n_groups, -3) for each in (key, value))
    logits = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
    if attn_mask is None:
        weights = functional.softmax(logits, -1)
    else:
        is_seen = attn_mask.dtype == torch.bool
        logits = logits.masked_fill(~attn_mask, -math.inf) if is_seen else logits + attn_mask
        # As PyTorch's: a query that may see nothing gets 0.
        is_blind = (logits == -math.inf).all(-1, keepdim=True)
        weights = functional.softmax(logits.masked_fill(is_blind, 0.0), -1).masked_fill(is_blind, 0.0)
    return (dropout(weights, dropout_p) if dropout_p else weights) @ value


_whole: Any = functional.multi_head_attention_forward
multi_head_attention: Any = FunctionType(
    _whole.__code__, vars(functional) | {"has_torch_function": lambda _: False}, argdefs=_whole.__defaults__
)
"""The body of PyTorch's function, whose own calls a mode sees."""
multi_head_attention.__kwdefaults__ = _whole.__kwdefaults__


def lstm_cell(x: Tensor, state: State, weights: Sequence[Tensor | None]) -> State:
    """One step of an LSTM, the weights in the order of `nn.LSTM`. Source: the formulas of PyTorch's documentation."""
    h, c = state
    i, f, g, o = _sum_of_products(x, h, weights).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    # A projection stands behind the biases, if there is one.
    return (h if len(weights) % 2 == 0 else linear(h, _given(weights[-1])), c)


def gru_cell(x: Tensor, state: State, weights: Sequence[Tensor | None]) -> State:
    """One step of a GRU. Source: as above."""
    (h,), (of_input, of_state, *biases) = state, weights
    one, other = biases or (None, None)
    of_x, of_h = linear(x, _given(of_input), one).chunk(3, -1), linear(h, _given(of_state), other).chunk(3, -1)
    r, z = (of_x[0] + of_h[0]).sigmoid(), (of_x[1] + of_h[1]).sigmoid()
    return ((1 - z) * (of_x[2] + r * of_h[2]).tanh() + z * h,)


def _tanh_cell(x: Tensor, state: State, weights: Sequence[Tensor | None]) -> State:
    return (_sum_of_products(x, state[0], weights).tanh(),)


def _relu_cell(x: Tensor, state: State, weights: Sequence[Tensor | None]) -> State:
    return (_sum_of_products(x, state[0], weights).relu(),)


def _sum_of_products(x: Tensor, h: Tensor, weights: Sequence[Tensor | None]) -> Tensor:
    of_input, of_state, *rest = weights
    biases = rest[:2] if len(rest) >= 2 else (None, None)
    return linear(x, _given(of_input), biases[0]) + linear(h, _given(of_state), biases[1])


def _given(weight: Tensor | None) -> Tensor:
    assert weight is not None
    return weight


def _recurrent(cell: Cell) -> Callable[..., tuple[Tensor, ...]]:
    """A recurrent layer by a loop over steps, layers and directions, called as `torch.lstm` is without packing."""

    def layer(
        input: Tensor,
        hx: Tensor | State,
        weights: Sequence[Tensor],
        has_biases: object,
        num_layers: int,
        share: float,
        training: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, ...]:
        if not isinstance(has_biases, bool):
            raise SpecError(
                "nn.utils.rnn.pack_padded_sequence",
                given="sequences of several lengths in one tensor",
                expected="sequences of one length",
                fix="leave it out: pad the sequences, and give what stands behind their ends the weight 0 in the loss",
            )
        x_TBD = input.transpose(0, 1) if batch_first else input
        states, n_directions = [hx] if isinstance(hx, Tensor) else list(hx), 1 + bidirectional
        n_weights, ends = len(weights) // (num_layers * n_directions), []
        for number in range(num_layers):
            found = []
            for at in range(number * n_directions, (number + 1) * n_directions):
                own = weights[at * n_weights : (at + 1) * n_weights]
                is_backward = bidirectional and at % 2 == 1
                found_TBD, end = _run(cell, x_TBD, tuple(each[at] for each in states), own, is_backward)
                found.append(found_TBD)
                ends.append(end)
            x_TBD = torch.cat(found, -1)
            if share and training and number + 1 < num_layers:
                x_TBD = dropout(x_TBD, share)
        last = (torch.stack(each) for each in zip(*ends, strict=True))
        return x_TBD.transpose(0, 1) if batch_first else x_TBD, *last

    return layer


def _run(
    cell: Cell, x_TBD: Tensor, state: State, weights: Sequence[Tensor | None], is_backward: bool
) -> tuple[Tensor, State]:
    steps = list(x_TBD.unbind(0))
    found = []
    for x_BD in reversed(steps) if is_backward else steps:
        state = cell(x_BD, state, weights)
        found.append(state[0])
    return torch.stack(found[::-1] if is_backward else found), state


def _lstm_step(input: Tensor, hx: State, *weights: Tensor | None) -> State:
    return lstm_cell(input, hx, weights)


def _gru_step(input: Tensor, hx: Tensor, *weights: Tensor | None) -> Tensor:
    return gru_cell(input, (hx,), weights)[0]


PLAIN_FORMS: dict[object, Callable[..., Any]] = {
    functional.scaled_dot_product_attention: attention,
    functional.multi_head_attention_forward: multi_head_attention,
    torch.lstm: _recurrent(lstm_cell),
    torch.gru: _recurrent(gru_cell),
    torch.rnn_tanh: _recurrent(_tanh_cell),
    torch.rnn_relu: _recurrent(_relu_cell),
    torch.lstm_cell: _lstm_step,
    torch.gru_cell: _gru_step,
}
"""The plain form of each function."""
