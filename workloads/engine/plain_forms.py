"""Attention, recurrent layers and layer norms in basic operations, which `vmap` supports; these layer norms allow an
epsilon per training. Axes: T position in a sequence, B sequence, D channel of a recurrent state."""

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
"""The state of a recurrent layer: the hidden state h, and for an LSTM also the cell state c."""
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
    if enable_gqa:
        n_groups = query.shape[-3] // key.shape[-3]
        key, value = (tensor.repeat_interleave(n_groups, -3) for tensor in (key, value))
    logits = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
    if attn_mask is None:
        weights = functional.softmax(logits, -1)
    else:
        is_boolean = attn_mask.dtype == torch.bool
        logits = logits.masked_fill(~attn_mask, -math.inf) if is_boolean else logits + attn_mask
        # A query that may see no key gets 0, as in PyTorch; a softmax over no keys would give NaN.
        sees_nothing = (logits == -math.inf).all(-1, keepdim=True)
        weights = functional.softmax(logits.masked_fill(sees_nothing, 0.0), -1).masked_fill(sees_nothing, 0.0)
    return (dropout(weights, dropout_p) if dropout_p else weights) @ value


_original: Any = functional.multi_head_attention_forward
multi_head_attention: Any = FunctionType(
    _original.__code__, vars(functional) | {"has_torch_function": lambda _: False}, argdefs=_original.__defaults__
)
"""PyTorch's function without its early dispatch, so that a `TorchFunctionMode` can replace the calls in its body."""
multi_head_attention.__kwdefaults__ = _original.__kwdefaults__


def lstm_cell(x: Tensor, state: State, weights: Sequence[Tensor | None]) -> State:
    h, c = state
    i, f, g, o = _sum_of_products(x, h, weights).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    # An odd number of weight tensors means that the LSTM has a projection, whose tensor is the last one.
    return (h if len(weights) % 2 == 0 else linear(h, _present(weights[-1])), c)


def gru_cell(x: Tensor, state: State, weights: Sequence[Tensor | None]) -> State:
    (h,), (input_weight, state_weight, *biases) = state, weights
    input_bias, state_bias = biases or (None, None)
    from_input, from_state = (
        linear(x, _present(input_weight), input_bias).chunk(3, -1),
        linear(h, _present(state_weight), state_bias).chunk(3, -1),
    )
    r, z = (from_input[0] + from_state[0]).sigmoid(), (from_input[1] + from_state[1]).sigmoid()
    return ((1 - z) * (from_input[2] + r * from_state[2]).tanh() + z * h,)


def _sum_of_products(x: Tensor, h: Tensor, weights: Sequence[Tensor | None]) -> Tensor:
    input_weight, state_weight, *biases_and_projection = weights
    biases = biases_and_projection[:2] if len(biases_and_projection) >= 2 else (None, None)
    return linear(x, _present(input_weight), biases[0]) + linear(h, _present(state_weight), biases[1])


def _present(weight: Tensor | None) -> Tensor:
    assert weight is not None
    return weight


def _recurrent(cell: Cell) -> Callable[..., tuple[Tensor, ...]]:
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
            given = "packed sequences of several lengths"
            expected = "sequences of the same length"
            fix = "leave out pack_padded_sequence: pad the sequences, and give the padding the weight 0 in the loss"
            raise SpecError("nn.utils.rnn.pack_padded_sequence", given=given, expected=expected, fix=fix)
        x_TBD = input.transpose(0, 1) if batch_first else input
        states, n_directions = [hx] if isinstance(hx, Tensor) else list(hx), 1 + bidirectional
        n_weights, ends = len(weights) // (num_layers * n_directions), []
        for number in range(num_layers):
            outputs = []
            for at in range(number * n_directions, (number + 1) * n_directions):
                own_weights = weights[at * n_weights : (at + 1) * n_weights]
                is_backward = bidirectional and at % 2 == 1
                start = tuple(state[at] for state in states)
                output_TBD, end = _run(cell, x_TBD, start, own_weights, is_backward)
                outputs.append(output_TBD)
                ends.append(end)
            x_TBD = torch.cat(outputs, -1)
            if share and training and number + 1 < num_layers:
                x_TBD = dropout(x_TBD, share)
        last = (torch.stack(end_states) for end_states in zip(*ends, strict=True))
        return x_TBD.transpose(0, 1) if batch_first else x_TBD, *last

    return layer


def _run(
    cell: Cell, x_TBD: Tensor, state: State, weights: Sequence[Tensor | None], is_backward: bool
) -> tuple[Tensor, State]:
    steps = list(x_TBD.unbind(0))
    outputs = []
    for x_BD in reversed(steps) if is_backward else steps:
        state = cell(x_BD, state, weights)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if is_backward else outputs), state


PLAIN_FORMS: dict[object, Callable[..., Any]] = {
    functional.scaled_dot_product_attention: attention,
    functional.multi_head_attention_forward: multi_head_attention,
    torch.lstm: _recurrent(lstm_cell),
    torch.gru: _recurrent(gru_cell),
    torch.rnn_tanh: _recurrent(lambda x, state, weights: (_sum_of_products(x, state[0], weights).tanh(),)),
    torch.rnn_relu: _recurrent(lambda x, state, weights: (_sum_of_products(x, state[0], weights).relu(),)),
    torch.lstm_cell: lambda input, hx, *weights: lstm_cell(input, hx, weights),
    torch.gru_cell: lambda input, hx, *weights: gru_cell(input, (hx,), weights)[0],
}


_SMALLEST_EPS = {torch.bfloat16: 1e-24, torch.float32: 1e-24, torch.float64: 1e-60}


def layer_norm(value: Tensor, gain: Tensor, bias: Tensor, layer_norm_eps: Tensor) -> Tensor:
    """(x - mean) / sqrt(variance + layer_norm_eps) * gain + bias over the last axis: epsilon inside the root, like
    `torch.nn.LayerNorm`. Source: Ba, Kiros & Hinton 2016, equation 4."""
    centred = value - value.mean(-1, keepdim=True)
    return centred * inverse_deviation(centred, layer_norm_eps) * gain + bias


def inverse_deviation(centred: Tensor, layer_norm_eps: Tensor, dim: int = -1) -> Tensor:
    """1 / sqrt(variance + layer_norm_eps) along an axis on which the mean is 0, kept with size 1."""
    return torch.rsqrt(centred.square().mean(dim, keepdim=True) + layer_norm_eps)


def inverse_root(layer_norm_eps: Tensor) -> Tensor:
    """1 / sqrt(layer_norm_eps) for `fused_layer_norm`, with a tiny number, far below any variance, in place of 0."""
    return torch.rsqrt(layer_norm_eps.clamp(min=_SMALLEST_EPS[layer_norm_eps.dtype]))


def fused_layer_norm(value: Tensor, gain: Tensor, bias: Tensor, inverse_root_eps: Tensor) -> Tensor:
    """`layer_norm` in three operations, not nine: PyTorch's kernel takes epsilon as a constant, but x with epsilon
    gives the same as x / sqrt(epsilon) with 1. At epsilon 0 a constant vector gives `bias`, not NaN, and variances must
    be far above 1e-24 in single precision, 1e-60 in double."""
    normal = torch.nn.functional.layer_norm(value * inverse_root_eps, value.shape[-1:], eps=1.0)
    return torch.addcmul(bias, normal, gain)


def outside_layer_norm(value: Tensor, gain: Tensor, bias: Tensor, layer_norm_eps: Tensor) -> Tensor:
    """(x - mean) / (std + layer_norm_eps) * gain + bias over the last axis: epsilon outside the root, with
    `torch.std`'s n - 1. At epsilon 0 a constant vector gives NaN. Source: the code of Conti 2024."""
    centred = value - value.mean(-1, keepdim=True)
    return torch.addcmul(bias, centred / (value.std(-1, keepdim=True) + layer_norm_eps), gain)
