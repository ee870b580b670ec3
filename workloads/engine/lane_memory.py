"""Memory for the lanes of a pack that stays where it is while lanes leave, so that captured steps can be replayed.

Axes: A lane of the pack, L lane of a bucket: the first A are the pack's, the others copies whose results nobody reads.
"""

from torch import Tensor

from attnsweep.workloads.engine.first_order import FirstOrder
from attnsweep.workloads.engine.layout import ROWS
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.width import filled_up


class Bucket:
    """The state of at most so many lanes.

    Attributes:
        size: L.
        rows: (L, n), their parameters.
        buffers: (L, ...).
        rule: Their update rule.
        state, constants: As `FirstOrder` has them, (L, ...).
    """

    def __init__(self, size: int, optimizer: FirstOrder, rows: Tensor, buffers: State) -> None:
        self.size = size
        self.rows = filled_up(rows, size)
        self.buffers = {name: filled_up(value, size) for name, value in buffers.items()}
        self.rule = optimizer.rule
        self.state = {name: filled_up(value, size) for name, value in optimizer.state_of({ROWS: rows}).items()}
        self.constants = {name: filled_up(value, size) for name, value in optimizer.constants.items()}

    def has(self, rows: Tensor) -> bool:
        """Whether `rows` (A, n) are the bucket's own memory."""
        return rows.is_set_to(self.rows[: len(rows)])

    def load(self, optimizer: FirstOrder, rows: Tensor, buffers: State) -> None:
        """Copies the state of lanes (A, ...) into the bucket."""
        self.rows[: len(rows)].copy_(rows)
        of_lanes = buffers, optimizer.state_of({ROWS: rows}), optimizer.constants
        for own, values in zip((self.buffers, self.state, self.constants), of_lanes, strict=True):
            for name, value in values.items():
                own[name][: len(rows)].copy_(value)

    def lend(self, optimizer: FirstOrder, rows: Tensor) -> None:
        """Makes the pack's `rows` (A, n) and its optimizer's state the bucket's own memory: steps need no copies."""
        n_lanes = len(rows)
        state = {name: value[:n_lanes] for name, value in self.state.items()}
        optimizer.load_state_dict(state | {"n_updates": optimizer.state_dict()["n_updates"]})
        rows.set_(self.rows[:n_lanes])  # type: ignore[call-overload]


class LaneMemory:
    """The bucket of a pack, whose lanes only leave. It stays as large as the pack was."""

    def __init__(self) -> None:
        self._bucket: Bucket | None = None

    def bucket_of(self, optimizer: FirstOrder, rows: Tensor, buffers: State) -> Bucket:
        """The bucket that lanes (A, ...) are in, after they have been moved there if they were elsewhere."""
        bucket = self._bucket
        if bucket is None:
            bucket = self._bucket = Bucket(len(rows), optimizer, rows, buffers)
        elif bucket.has(rows):
            return bucket
        else:
            bucket.load(optimizer, rows, buffers)
        bucket.lend(optimizer, rows)
        return bucket
