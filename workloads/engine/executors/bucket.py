"""Memory for the lanes of a pack that stays where it is while lanes leave, so that captured steps can be replayed.

Axes: A lane of the pack, L lane of a bucket: the first A are the pack's, the others copies whose results nobody reads.
"""

from copy import copy

import torch

from attnsweep.workloads.engine.lane_state import LaneState
from attnsweep.workloads.engine.layout import ROWS
from attnsweep.workloads.engine.optimizers import State
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
        """Whether the rows of these lanes are the bucket's own memory."""
        return lanes.rows.is_set_to(self.rows[: len(lanes.rows)])

    def load(self, lanes: LaneState) -> None:
        """Copies the state of lanes (A, ...) into the bucket."""
        self.rows[: len(lanes.rows)].copy_(lanes.rows)
        own, others = ((of.buffers, of.stepping.constants, _state_of(of)) for of in (self, lanes))
        for into, values in zip(own, others, strict=True):
            for name, value in values.items():
                into[name][: len(value)].copy_(value)

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
        bucket.load(lanes)
    bucket.lend(lanes)
    return bucket


def _state_of(lanes: LaneState) -> State:
    """What steps change besides the rows, (L, ...) by name."""
    return lanes.stepping.state_of({ROWS: lanes.rows})
