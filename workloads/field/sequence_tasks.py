"""Short tasks on sequences, for a transformer of any depth: majority, brackets, sorting, associative recall.

`majority`: is 1 the more frequent of `length` bits? `brackets`: which kind of bracket may close after each token, if
any (Dyck-k, of depth `max_depth` at most)? `sort`: `length` numbers and a separator, to be followed by the numbers in
order. `recall`: `length` pairs of a key and a value, with different keys, then one of the keys; what is its value?

Axes of one training: B sequence, T token, N number, K place of a stack.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from attnsweep.workloads.attention.transformer import Kind, Norm, Positions, Transformer
from attnsweep.workloads.declaration import parameter
from attnsweep.workloads.problem.data import Draw
from attnsweep.workloads.problem.declared import problem

Task = Literal["majority", "brackets", "sort", "recall"]
_NO_TARGET = -100


def model(
    task: Task,
    length: int,
    n_kinds: int,
    d_model: int = parameter(16, "width", low=1),
    n_blocks: int = parameter(2, "layers", low=1),
    n_heads: int = parameter(2, "attention heads of a layer", low=1),
    d_ffn: int = parameter(32, "width of the feed-forward parts; 0 for none", low=0),
    attention: Kind = parameter("softmax", "weights are a softmax of the logits, or the logits over the keys' number"),
    attention_scale: float = parameter(1.0, "factor of the logits, in units of 1/sqrt(channels)"),
    positions: Positions = parameter("learned", "how the model sees positions"),
    norm: Norm = parameter("pre", "LayerNorms before each part of a layer, after it, or none"),
    layer_norm_eps: float = parameter(1e-5, "epsilon of norm=pre, inside the root", low=0.0),
) -> nn.Module:
    n_words, n_read = {
        "majority": (2, length),
        "brackets": (2 * n_kinds, length),
        "sort": (n_kinds + 1, 2 * length),
        "recall": (max(length, n_kinds) + n_kinds, 2 * length + 1),
    }[task]
    return Transformer(
        n_words,
        n_read,
        n_answers=n_kinds + 1 if task == "brackets" else None,
        d_model=d_model,
        n_blocks=n_blocks,
        n_heads=n_heads,
        d_ffn=d_ffn,
        attention=attention,
        attention_scale=attention_scale,
        norm=norm,
        layer_norm_eps=layer_norm_eps,
        positions=positions,
    )


def sequences(
    draw: Draw,
    task: Task = parameter("recall", "what is asked of a sequence"),
    length: int = parameter(8, "number of bits, brackets, numbers, or pairs in a sequence", low=1),
    n_kinds: int = parameter(8, "kinds of brackets, of numbers, or of values", low=1),
    max_depth: int = parameter(4, "largest number of brackets that are open at once", low=1),
    batch_size: int = parameter(32, "sequences per step", low=1),
) -> tuple[Tensor, Tensor]:
    """The tokens that the model reads, and the answer at each, -100 where none counts, (B, T)."""
    match task:
        case "majority":
            token_BT = draw.integers(2, batch_size, length)
            return token_BT, _at_the_end(token_BT, (2 * token_BT.sum(-1) > length).long())
        case "brackets":
            return _brackets(draw, length, n_kinds, max_depth, batch_size)
        case "sort":
            number_BN = draw.integers(n_kinds, batch_size, length)
            sign_B1 = torch.full_like(number_BN[:, :1], n_kinds)
            token_BT = torch.cat([number_BN, sign_B1, number_BN.sort(-1).values], -1)
            return token_BT[:, :-1], torch.cat([torch.full_like(number_BN, _NO_TARGET), token_BT[:, -length:]], -1)
        case "recall":
            value_BN = draw.integers(n_kinds, batch_size, length)
            key_BN = n_kinds + draw.permutation(max(length, n_kinds), batch_size)[:, :length]
            asked_B1 = draw.integers(length, batch_size, 1)
            pairs_BT = torch.stack([key_BN, value_BN], -1).flatten(1)
            token_BT = torch.cat([pairs_BT, key_BN.gather(-1, asked_B1)], -1)
            return token_BT, _at_the_end(token_BT, value_BN.gather(-1, asked_B1)[:, 0])


def _at_the_end(token_BT: Tensor, answer_B: Tensor) -> Tensor:
    return torch.cat([torch.full_like(token_BT[:, 1:], _NO_TARGET), answer_B.unsqueeze(-1)], -1)


def _brackets(draw: Draw, length: int, n_kinds: int, max_depth: int, batch_size: int) -> tuple[Tensor, Tensor]:
    may_open_TB, kind_TB = draw.uniform(length, batch_size) < 0.5, draw.integers(n_kinds, length, batch_size)
    depth_B = torch.zeros_like(kind_TB[0])
    place_K = torch.arange(max_depth, device=depth_B.device)
    stack_BK = torch.zeros_like(depth_B.unsqueeze(-1) + place_K)
    tokens, answers = [], []
    for may_open_B, kind_B in zip(may_open_TB, kind_TB, strict=True):
        opens_B = (depth_B == 0) | (may_open_B & (depth_B < max_depth))
        tokens.append(torch.where(opens_B, kind_B, n_kinds + _top(stack_BK, depth_B)))
        is_pushed_BK = opens_B.unsqueeze(-1) & (place_K == depth_B.unsqueeze(-1))
        stack_BK = torch.where(is_pushed_BK, kind_B.unsqueeze(-1), stack_BK)
        depth_B = depth_B + torch.where(opens_B, 1, -1)
        answers.append(torch.where(depth_B > 0, _top(stack_BK, depth_B), n_kinds))
    return torch.stack(tokens, -1), torch.stack(answers, -1)


def _top(stack_BK: Tensor, depth_B: Tensor) -> Tensor:
    return stack_BK.gather(-1, (depth_B - 1).clamp(min=0).unsqueeze(-1))[:, 0]


SEQUENCE_TASKS = problem(
    "sequence_tasks",
    summary="majority, brackets of k kinds, sorting, associative recall, by depth and length",
    model=model,
    data=sequences,
    loss="cross_entropy",
    solved="accuracy >= 0.99",
    defaults={"optimizer": "adam", "learning_rate": 3e-3, "n_steps": 500},
    probe_steps=50,
)
