"""Memory for the lanes of a pack that stays where it is while lanes leave, so that captured steps can be replayed.

Axes: A lane of the pack, L lane of a bucket: the first A are the pack's, the others copies whose results nobody reads.
"""

from collections.abc import Iterator
from dataclasses import fields

import torch
from torch import Tensor

from attnsweep.workloads.engine.lane_state import LaneState
from attnsweep.workloads.engine.layout import ROWS
from attnsweep.workloads.engine.optimizers import Settings, State
from attnsweep.workloads.engine.width import filled_up


class Bucket(LaneState):
    """The state of at most so many lanes.

    Args:
        lanes: Those that it begins with.

    Attributes:
        size: L.
    """

    def __init__(self, lanes: LaneState) -> None:
        self.size = size = len(lanes.rows)
        state = {name: filled_up(value, size) for name, value in _state_of(lanes).items()}
        lane_L = filled_up(torch.arange(size, device=lanes.rows.device), size)
        super().__init__(
            problem=lanes.problem,
            optimizer=lanes.stepping.on(lanes.optimizer.settings.select(lane_L), state),
            rows=filled_up(lanes.rows, size),
            buffers={name: filled_up(value, size) for name, value in lanes.buffers.items()},
        )

    def has(self, lanes: LaneState) -> bool:
        """Whether the rows of these lanes are the bucket's own memory."""
        return lanes.rows.is_set_to(self.rows[: len(lanes.rows)])

    def load(self, lanes: LaneState) -> None:
        """Copies the state of lanes (A, ...) into the bucket."""
        pairs = [(self.rows, lanes.rows), *((self.buffers[name], value) for name, value in lanes.buffers.items())]
        pairs += zip(_settings(self.optimizer.settings), _settings(lanes.optimizer.settings), strict=True)
        own = _state_of(self)
        pairs += [(own[name], value) for name, value in _state_of(lanes).items()]
        for into, values in pairs:
            into[: len(lanes.rows)].copy_(values)

    def lend(self, lanes: LaneState) -> None:
        """Makes the rows of these lanes and their optimizer's state the bucket's own memory: steps need no copies."""
        n_lanes, optimizer = len(lanes.rows), lanes.optimizer
        state = {name: value[:n_lanes] for name, value in _state_of(self).items()}
        optimizer.load_state_dict(state | {"n_updates": optimizer.state_dict()["n_updates"]})
        lanes.rows = self.rows[:n_lanes]


def bucket_of(lanes: LaneState) -> Bucket:
    """The bucket of a pack, as large as the pack was at first. Its lanes (A, ...) live there, and only leave."""
    bucket = lanes.resident
    if not isinstance(bucket, Bucket):
        bucket = lanes.resident = Bucket(lanes)
    elif bucket.has(lanes):
        return bucket
    else:
        # An operation that the lanes left no longer need, such as clipping, stays: it changes none of their bits.
        bucket.load(lanes)
    bucket.lend(lanes)
    return bucket


def _state_of(lanes: LaneState) -> State:
    """What steps change besides the rows, (L, ...) by name."""
    optimizer = lanes.stepping
    optimizer.moments_of({ROWS: lanes.rows})
    return {name: value for name, value in optimizer.state_dict().items() if name != "n_updates"}


def _settings(settings: Settings) -> Iterator[Tensor]:
    values = (getattr(settings, field.name) for field in fields(settings))
    return (value for value in values if isinstance(value, Tensor))
