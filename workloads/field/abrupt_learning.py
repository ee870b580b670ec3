"""Abrupt learning: a model reads numbers and a separator, and writes the answers one after the other.

The loss stays on a plateau, where all answers but the first are guessed, and then falls abruptly. On the plateau the
model repeats its answers, and its states at different tokens are nearly parallel. Source: Gopalani & Hu 2025, arXiv
2506.13688 (code: pulkitgopalani/tf-loss-plateau).

Axes of one training: B sequence, N number, T token, D model, H head, Q query token, K key token.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attnsweep.workloads.attention.attention import Attention, Sight
from attnsweep.workloads.attention.transformer import Kind, Norm, Transformer
from attnsweep.workloads.declaration import parameter
from attnsweep.workloads.problem.data import Draw
from attnsweep.workloads.problem.declared import problem

Task = Literal["window_sum", "prefix_sum", "permutation", "reverse", "copy"]


class BiasedAttention(Attention):
    """Attention with a fixed factor for each pair of positions: the weights are softmax(s Q K^t + ln factor), or
    s Q K^t times the factor, not divided by the number of keys, as in the source."""

    factor_TT: Tensor

    def __init__(self, d_model: int, n_heads: int, kind: Kind, attention_scale: float, factor_TT: Tensor) -> None:
        super().__init__(d_model, n_heads, kind=kind, attention_scale=attention_scale)
        self.register_buffer("factor_TT", factor_TT)

    def weights(self, query_BHQC: Tensor, key_BHKC: Tensor, sight: Sight) -> Tensor:
        factor_QK = self.factor_TT[: query_BHQC.shape[2], : key_BHKC.shape[2]].to(query_BHQC.dtype)
        bias_BHQK = sight.bias_BQK.unsqueeze(1)
        if self.kind == "softmax":
            return torch.softmax(query_BHQC @ key_BHKC.mT + (bias_BHQK + factor_QK.log()), dim=-1)
        return (query_BHQC @ key_BHKC.mT) * (bias_BHQK == 0) * factor_QK


def optimal_keys(task: Task, length: int) -> Tensor:
    """The tokens that each answer needs, bool (length, T); for `permutation` those that tell what to copy."""
    answer, key = torch.arange(length).unsqueeze(1), torch.arange(_n_read(task, length))
    match task:
        case "window_sum":
            return (key == answer) | (key == answer - 1)
        case "prefix_sum":
            return (key == answer) | (key == answer + length) & (answer > 0)
        case "permutation":
            return key == answer + length + 1
        case "reverse":
            return key == length - 1 - answer
        case "copy":
            return key == answer


def _n_read(task: Task, length: int) -> int:
    """The input, separators and all of the answer but its last token."""
    return 3 * length + 1 if task == "permutation" else 2 * length


def model(
    task: Task,
    length: int,
    n_numbers: int,
    d_model: int = parameter(24, "width; 256 in the source", low=1),
    n_blocks: int = parameter(1, "layers; 2 in the source for task=permutation", low=1),
    n_heads: int = parameter(1, "attention heads of a layer", low=1),
    attention: Kind = parameter("linear", "weights are a softmax of the logits, or the logits themselves"),
    attention_scale: float = parameter(1.0, "factor of the logits, in units of 1/sqrt(d)"),
    optimal_scale: float = parameter(
        1.0, "factor of the answers' attention weights on the tokens that they need; c in the source", above=0.0
    ),
    norm: Norm = parameter("pre", "LayerNorms before each part of a layer, after it, or none"),
    layer_norm_eps: float = parameter(1e-5, "epsilon of norm=pre, inside the root", low=0.0),
) -> Transformer:
    T = _n_read(task, length)
    transformer = Transformer(
        n_numbers + 2 + (length if task == "permutation" else 0),
        T,
        d_model=d_model,
        n_blocks=n_blocks,
        n_heads=n_heads,
        d_ffn=4 * d_model,
        norm=norm,
        layer_norm_eps=layer_norm_eps,
        activation="gelu_tanh",
    )
    factor_TT = torch.ones(T, T, dtype=torch.float64)
    # Without the first answer, which is learned at once, as in the source.
    factor_TT[T - length + 1 :][optimal_keys(task, length)[1:]] = optimal_scale
    for block in transformer.blocks:
        block.attention = BiasedAttention(d_model, n_heads, attention, attention_scale, factor_TT)
    return transformer


def sequences(
    draw: Draw,
    task: Task = parameter("window_sum", "what the answers are"),
    length: int = parameter(6, "numbers in a sequence, and number of answers; 16 in the source", low=3),
    n_numbers: int = parameter(6, "numbers are 1 to n_numbers; 16 in the source. Sums are modulo n_numbers + 1", low=2),
    batch_size: int = parameter(32, "sequences per step; 256 in the source", low=1),
) -> tuple[Tensor, Tensor]:
    """The tokens that the model reads, (B, T), and as targets the following ones, whose last `length` are the
    answers."""
    modulus, number_BN = n_numbers + 1, 1 + draw.integers(n_numbers, batch_size, length)
    sign = torch.full_like(number_BN[:, :1], n_numbers + 1)
    parts = [number_BN, sign]
    match task:
        case "window_sum":
            answer_BN = torch.cat([number_BN[:, :1], (number_BN[:, 1:] + number_BN[:, :-1]) % modulus], -1)
        case "prefix_sum":
            answer_BN = number_BN.cumsum(-1) % modulus
        case "permutation":
            place_BN = draw.permutation(length, batch_size)
            parts += [n_numbers + 2 + place_BN, sign]
            answer_BN = number_BN.gather(-1, place_BN)
        case "reverse":
            answer_BN = number_BN.flip(-1)
        case "copy":
            answer_BN = number_BN
    token_BT = torch.cat([*parts, answer_BN], -1)
    return token_BT[:, :-1], token_BT[:, 1:]


def guess_level(task: Task, length: int, n_numbers: int, n_known: int = 0) -> float:
    """The mean loss in nats of a predictor that knows how often each token occurs at each position, and gets the first
    `n_known` answers right.

    A sum of k independent numbers uniform on 1 to m, modulo p = m + 1, is 0 with probability (1 + m (-1/m)^k) / p, and
    each other value with (1 - (-1/m)^k) / p: all Fourier coefficients of the distribution of one number are -1/m,
    except that of the constant.
    """

    def entropy_of_sum(k: int) -> float:
        at_zero, elsewhere = (1 + n_numbers * (-1 / n_numbers) ** k, 1 - (-1 / n_numbers) ** k)
        shares = [at_zero / (n_numbers + 1)] + [elsewhere / (n_numbers + 1)] * n_numbers
        return -sum(share * math.log(share) for share in shares if share)

    summed = {"window_sum": [1] + [2] * (length - 1), "prefix_sum": range(1, length + 1)}.get(task, [1] * length)
    places = length * math.log(length) if task == "permutation" else 0.0
    total = (length - 1) * math.log(n_numbers) + places + sum(map(entropy_of_sum, summed[n_known:]))
    return total / _n_read(task, length)


def accuracy(output: Tensor, target: Tensor, length: int) -> Tensor:
    """Of answers after the true earlier ones."""
    return (output.argmax(-1) == target)[:, -length:].to(output.dtype).mean()


def first_accuracy(output: Tensor, target: Tensor, length: int) -> Tensor:
    return (output.argmax(-1) == target)[:, -length].to(output.dtype).mean()


def repetition(module: Any, inputs: Tensor, length: int) -> Tensor:
    """How often an answer equals the one before, when the model reads its own earlier ones."""
    token_BT = inputs[:, : inputs.shape[1] - length + 1]
    for _ in range(length):
        logits_BTV: Tensor = module(token_BT)
        token_BT = torch.cat([token_BT, logits_BTV[:, -1:].argmax(-1)], -1)
    answer_BN = token_BT[:, -length:]
    return (answer_BN[:, 1:] == answer_BN[:, :-1]).to(logits_BTV.dtype).mean()


def collapse(module: Any, inputs: Tensor, length: int) -> Tensor:
    """The mean cosine similarity of the final states from which answers are read, without the first."""
    state_BND = nn.functional.normalize(module.last_norm(module.states(inputs)[0])[:, 1 - length :], dim=-1)
    return (state_BND.sum(1).square().sum(-1).mean() - (length - 1)) / ((length - 1) * (length - 2))


def on_optimal(weights: Tensor, task: Task, length: int) -> Tensor:
    """The share of each head's attention, by absolute value, on the tokens that answers need, (layer, head)."""
    size = weights[..., -length:, :].abs()
    return ((size * optimal_keys(task, length).to(size.device)).sum((-1, -2)) / size.sum((-1, -2))).mean(1)


def progress(module: Any, inputs: Tensor, task: Task, length: int) -> Tensor:
    """The measure of attention progress of Gopalani & Hu 2025: the mean of `on_optimal` over all heads."""
    return on_optimal(module.attention(inputs), task, length).mean()


ABRUPT_LEARNING = problem(
    "abrupt_learning",
    summary="sums, copies and permutations of numbers, learned at once after a plateau (Gopalani & Hu 2025)",
    model=model,
    data=sequences,
    loss="cross_entropy",
    solved="accuracy >= 0.95",
    metrics={
        "accuracy": accuracy,
        "first_accuracy": first_accuracy,
        "repetition": repetition,
        "collapse": collapse,
        "progress": progress,
    },
    levels={
        "guess": lambda task, length, n_numbers: guess_level(task, length, n_numbers),
        "first_answer": lambda task, length, n_numbers: guess_level(task, length, n_numbers, 1),
    },
    heads={"answers": on_optimal},
    events={
        "first_answer_learned": "first_accuracy >= 0.95",
        "repeating": "repetition >= 0.5",
        "collapsed": "collapse >= 0.9",
        "plateau_left": "accuracy >= 0.5",
    },
    defaults={"optimizer": "adam", "learning_rate": 3e-3, "init_sigma": 0.06, "n_steps": 400},
    eval_batch_size=64,
    probe_steps=20,
)
