"""Memory for the lanes of a pack that stays where it is while lanes leave, so that captured steps can be replayed.

Axes: A lane of the pack, L lane of a bucket: the first A are the pack's, the others copies whose results nobody reads.
"""

from collections.abc import Iterator
from dataclasses import fields

import torch
from torch import Tensor

from attnsweep.workloads.engine.first_order import FirstOrder
from attnsweep.workloads.engine.layout import ROWS
from attnsweep.workloads.engine.optimizers import Settings, State
from attnsweep.workloads.engine.width import filled_up


class Bucket:
    """The state of at most so many lanes.

    Attributes:
        size: L.
        rows: (L, n), their parameters.
        buffers: (L, ...).
        optimizer: Their update rule, whose tensors are (L, ...).
    """

    def __init__(self, size: int, optimizer: FirstOrder, rows: Tensor, buffers: State) -> None:
        self.size = size
        self.rows = filled_up(rows, size)
        self.buffers = {name: filled_up(value, size) for name, value in buffers.items()}
        state = {name: filled_up(value, size) for name, value in _state_of(optimizer, rows).items()}
        lane_L = filled_up(torch.arange(len(rows), device=rows.device), size)
        self.optimizer = optimizer.on(optimizer.settings.select(lane_L), state)

    def has(self, rows: Tensor) -> bool:
        """Whether `rows` (A, n) are the bucket's own memory."""
        return rows.is_set_to(self.rows[: len(rows)])

    def load(self, optimizer: FirstOrder, rows: Tensor, buffers: State) -> None:
        """Copies the state of lanes (A, ...) into the bucket."""
        pairs = [(self.rows, rows), *((self.buffers[name], value) for name, value in buffers.items())]
        pairs += zip(_settings(self.optimizer.settings), _settings(optimizer.settings), strict=True)
        own = _state_of(self.optimizer, self.rows)
        pairs += [(own[name], value) for name, value in _state_of(optimizer, rows).items()]
        for into, values in pairs:
            into[: len(rows)].copy_(values)

    def lend(self, optimizer: FirstOrder, rows: Tensor) -> None:
        """Makes the pack's `rows` (A, n) and its optimizer's state the bucket's own memory: steps need no copies."""
        n_lanes = len(rows)
        state = {name: value[:n_lanes] for name, value in _state_of(self.optimizer, self.rows).items()}
        optimizer.load_state_dict(state | {"n_updates": optimizer.state_dict()["n_updates"]})
        rows.set_(self.rows[:n_lanes])  # type: ignore[call-overload]


class LaneMemory:
    """The bucket of a pack, whose lanes only leave. When those left fit a smaller size, they move to it."""

    def __init__(self) -> None:
        self._bucket: Bucket | None = None

    def bucket_of(self, optimizer: FirstOrder, rows: Tensor, buffers: State) -> Bucket:
        """The bucket that lanes (A, ...) are in, after they have been moved there if they were elsewhere."""
        bucket = self._bucket
        if bucket is not None and bucket.has(rows):
            return bucket
        n_lanes = len(rows)
        # The first is as large as the pack, so that a pack without losses computes no copies.
        size = n_lanes if bucket is None else min(size_of(n_lanes), bucket.size)
        # An operation that the lanes left no longer need, such as clipping, stays: it changes none of their bits.
        if bucket is None or size != bucket.size:
            bucket = self._bucket = Bucket(size, optimizer, rows, buffers)
        else:
            bucket.load(optimizer, rows, buffers)
        bucket.lend(optimizer, rows)
        return bucket


def size_of(n_lanes: int) -> int:
    """The size of the bucket for so many lanes: a power of two, or three quarters of one.

    A third of its lanes at most are copies, and a pack that loses its lanes one by one is captured anew twice for each
    halving.
    """
    power = 1 << (n_lanes - 1).bit_length()
    three_quarters = power * 3 // 4
    return three_quarters if n_lanes <= three_quarters else power


def _state_of(optimizer: FirstOrder, rows: Tensor) -> State:
    """What steps change besides `rows`, (L, ...) by name."""
    optimizer.moments_of({ROWS: rows})
    return {name: value for name, value in optimizer.state_dict().items() if name != "n_updates"}


def _settings(settings: Settings) -> Iterator[Tensor]:
    values = (getattr(settings, field.name) for field in fields(settings))
    return (value for value in values if isinstance(value, Tensor))
