"""The scale-free flow of three factors: descent from the zero of system P in the limit of small starts.

Near the zero the loss is 1 minus a product of degree 3 in k, q and v, so that a start of size sigma is the same path as
one of size 1, only longer: it grows by a factor of about 1/sigma before the loss bends. How often alpha beta < 0 after
growing by a factor R, and how often as strongly as on the border that `metric_border` derives, shows how the share of
runaways falls with sigma.
Axes: L start, R rank (= M), N, M, K as in `positions_only`.
"""

import numpy as np
import torch
from torch import Tensor

from attnsweep.reproduction.studies.metric_border import border_ratio

FACTORS = (3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)
_STEP = 0.05
"""The largest relative change of a factor in a step."""
_STARTS_AT_ONCE = 2048


def opposed_shares(n_categories: int, n_positions: int, n_starts: int) -> list[list[str]]:
    """A table: the share of starts with alpha beta < 0 at the moment that |v| has grown by each of `FACTORS`.

    The last column is the share with beta / alpha below half its value on the border.
    """
    opposed = torch.zeros(2, len(FACTORS), dtype=torch.int64)
    for first in range(0, n_starts, _STARTS_AT_ONCE):
        opposed += _opposed(n_categories, n_positions, min(_STARTS_AT_ONCE, n_starts - first), first)
    shares = opposed.double().numpy() / n_starts
    error = 1.96 * np.sqrt(shares * (1 - shares) / n_starts)
    header = ["|v| / |v| at the start", "alpha beta < 0", "95% interval", "strongly", "95% interval"]
    lines = zip(FACTORS, shares.T, error.T, strict=True)
    return [
        header,
        *(
            [f"{factor:g}", *(text for each in zip(share, half, strict=True) for text in _texts(*each))]
            for factor, share, half in lines
        ),
    ]


def _texts(share: float, half: float) -> tuple[str, str]:
    return f"{share:.4f}", f"+- {half:.4f}"


def _opposed(n_categories: int, n_positions: int, n_starts: int, seed: int) -> Tensor:
    """(2, factors) the number of starts that are opposed at each factor, and that are strongly."""
    draw = torch.Generator().manual_seed(seed)
    N, M, K = n_categories, n_positions, n_positions - 1
    shapes = ((M, M), (M, K), (N, N))
    k, q, v = (torch.randn(n_starts, *shape, generator=draw, dtype=torch.float64) for shape in shapes)
    shift, mean = torch.eye(M, K, dtype=torch.float64), torch.full((N, N), 1 / N, dtype=torch.float64)
    rest, first_size = torch.eye(N, dtype=torch.float64) - mean, v.norm(dim=(1, 2))
    has_passed = torch.zeros(len(FACTORS), n_starts, dtype=torch.bool)
    is_opposed, is_strongly = torch.zeros_like(has_passed), torch.zeros_like(has_passed)
    grown = torch.ones(n_starts, dtype=torch.float64)
    factors = torch.tensor(FACTORS, dtype=torch.float64).unsqueeze(1)
    while not has_passed.all():
        logits, b = k.mT @ q, v.sum((1, 2)) / N
        a = v.diagonal(dim1=1, dim2=2).sum(1) - b
        pull = a.view(-1, 1, 1) * shift + b.view(-1, 1, 1)
        p, s = (logits * shift).sum((1, 2)).view(-1, 1, 1), logits.sum((1, 2)).view(-1, 1, 1)
        moves = (q @ pull.mT, k @ pull, p * rest + s * mean)
        rates = [move.norm(dim=(1, 2)) / value.norm(dim=(1, 2)) for move, value in zip(moves, (k, q, v), strict=True)]
        step = (_STEP / torch.stack(rates).amax(0)).view(-1, 1, 1)
        k, q, v = (value + step * move for value, move in zip((k, q, v), moves, strict=True))
        # Scaled back, because the direction of the flow depends on no scale.
        size = v.norm(dim=(1, 2)) / first_size
        grown = grown * size
        k, q, v = (value / size.view(-1, 1, 1) for value in (k, q, v))
        passes = (grown >= factors) & ~has_passed
        is_opposed |= passes & (a * b < 0)
        is_strongly |= passes & (b * (N - 1) / a < border_ratio(N, M) / 2)
        has_passed |= passes
    return torch.stack([is_opposed.sum(1), is_strongly.sum(1)])
