"""The losses that a flavour adds to pull the combined model towards one of the three solutions.

The paper names the flavours and does not print their losses; these are ours:

    added loss = flavour_weight (sum of squares of the entries of k^t q, v, W_1 and w_2 that the solution leaves zero)

With categories (c) and positions (p) as rows and columns, the entries left free are

    solution 1: k^t q on pp; v on the diagonal of cc; W_1 on c; w_2
    solution 2: k^t q on cc; v on pp; W_1 and w_2 on the units that each read one p
    solution 3: k^t q on pp; v on cc; W_1 and w_2 on the units that each read one c

The feed-forward part must be restricted too: if it may mix rows, v may hold any invertible matrix in the place of c I,
U^t or q*^t, and solutions 1 and 3 become the same. The added losses do not contain the target q* and the shift U, so
where to attend and what to write is still learned.
Axes: S = N + M token rows, categories first; H hidden.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Unwanted:
    """The masks of a flavour (a penalized variant): 1 where its solution has a zero, else 0.

    Attributes:
        logits_SS: The mask of k^t q.
        values_SS: The mask of v.
        first_HS: The mask of W_1.
        second_H: The mask of w_2.
    """

    logits_SS: Tensor
    values_SS: Tensor
    first_HS: Tensor
    second_H: Tensor


def unwanted_entries(flavour: str, n_categories: int, n_positions: int, hidden_width: int) -> Unwanted:
    """Returns masks of the entries that the flavour's penalty pulls to zero; no entry for `unconstrained`."""
    n_rows = n_categories + n_positions
    shapes = ((n_rows, n_rows), (n_rows, n_rows), (hidden_width, n_rows), (hidden_width,))
    if flavour == "unconstrained":
        return Unwanted(*(torch.zeros(shape) for shape in shapes))
    logits, values, first, second = (torch.ones(shape) for shape in shapes)
    c, p = slice(0, n_categories), slice(n_categories, n_rows)
    asks, writes = (c, p) if flavour == "lean_2" else (p, c)
    logits[asks, asks] = 0.0
    values[writes, writes] = 0.0
    if flavour == "lean_1":
        values[writes, writes] = 1.0 - torch.eye(n_categories)
        first[:, writes] = 0.0
        second[:] = 0.0
    else:
        first[:, writes] -= torch.eye(hidden_width, n_rows)[:, writes]
        second[writes] = 0.0
    return Unwanted(logits, values, first, second)
