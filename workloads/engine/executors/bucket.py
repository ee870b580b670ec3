"""Keeps the lanes of a pack at fixed memory addresses, so that CUDA graphs can be replayed after lanes have left.

Axes: A lane of the pack, L lane of the bucket: the first A lanes are the pack's, the others unused copies.
"""

from copy import copy

import torch

from attnsweep.workloads.engine.lane_state import LaneState
from attnsweep.workloads.engine.layout import ROWS
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.width import filled_up


class Bucket(LaneState):
    """The state of up to L lanes at fixed memory addresses, as captured GPU steps need it.

    Args:
        lanes: The lanes that it contains at first. Their number is L.

    Attributes:
        size: L.
    """

    def __init__(self, lanes: LaneState) -> None:
        self.size = size = len(lanes.rows)
        optimizer = copy(lanes.stepping)
        state = {name: filled_up(value, size) for name, value in _state_of(lanes).items()}
        optimizer.load_state_dict(state | {"n_updates": torch.tensor(optimizer.n_updates)})
        optimizer.constants = {name: filled_up(value, size) for name, value in optimizer.constants.items()}
        super().__init__(
            problem=lanes.problem,
            optimizer=optimizer,
            rows=filled_up(lanes.rows, size),
            buffers={name: filled_up(value, size) for name, value in lanes.buffers.items()},
        )

    def has(self, lanes: LaneState) -> bool:
        """Returns whether the rows (parameters) of these lanes are in the bucket's memory."""
        return lanes.rows.is_set_to(self.rows[: len(lanes.rows)])

    def load(self, lanes: LaneState) -> None:
        """Copies the state of lanes (A, ...) into the bucket."""
        self.rows[: len(lanes.rows)].copy_(lanes.rows)
        own, others = ((state.buffers, state.stepping.constants, _state_of(state)) for state in (self, lanes))
        for memory, values in zip(own, others, strict=True):
            for name, value in values.items():
                memory[name][: len(value)].copy_(value)

    def lend(self, lanes: LaneState) -> None:
        """Makes the lanes' rows and optimizer state views of the bucket's memory, so that steps copy nothing."""
        n_lanes, optimizer = len(lanes.rows), lanes.optimizer
        state = {name: value[:n_lanes] for name, value in _state_of(self).items()}
        optimizer.load_state_dict(state | {"n_updates": optimizer.state_dict()["n_updates"]})
        lanes.rows = self.rows[:n_lanes]


def bucket_of(lanes: LaneState) -> Bucket:
    """Makes the bucket of a pack, with the pack's original size, and moves the lanes (A, ...) into it."""
    bucket = lanes.resident
    if not isinstance(bucket, Bucket):
        bucket = lanes.resident = Bucket(lanes)
    elif bucket.has(lanes):
        return bucket
    else:
        bucket.load(lanes)
    bucket.lend(lanes)
    return bucket


def _state_of(lanes: LaneState) -> State:
    """Returns the optimizer state that steps change, (L, ...) by name."""
    return lanes.stepping.state_of({ROWS: lanes.rows})
