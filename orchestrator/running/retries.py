"""Packs to train again: handed back, lost with their trainer, or split to find the lane at fault."""

from dataclasses import replace

from attnsweep.orchestrator.running.backlog import Backlog
from attnsweep.orchestrator.running.checkpoints import Checkpoints
from attnsweep.orchestrator.training.messages import PackOrder


class Retries:
    """A queue of packs to train again, with the trainers that each pack has lost.

    Args:
        checkpoints: The sweep's.

    Attributes:
        n_losses_in_a_row: Trainers lost since any pack last made progress.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.n_losses_in_a_row = 0
        self._checkpoints = checkpoints
        self._waiting: list[PackOrder] = []
        self._losses: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def restore(self, backlog: Backlog, environment: str | None) -> int:
        """Queues the checkpointed packs of an earlier run.

        A checkpoint is dropped if it is of another environment, since a row has one environment, or if its trainings
        are not in the backlog.

        Args:
            backlog: The backlog, from which the trainings of these packs are taken.
            environment: The id of the environment that trains now.

        Returns:
            How many trainings continue from a checkpoint.
        """
        for saved in self._checkpoints.load():
            tasks = backlog.take_lanes(saved.lanes) if saved.environment == environment else None
            if tasks is None:
                self._checkpoints.remove(saved.pack)
            else:
                self._waiting.append(PackOrder(saved.pack, tasks))
        return sum(len(order.tasks) for order in self._waiting)

    def next(self) -> PackOrder | None:
        """The pack that has waited longest, with its last checkpoint; `None` if none waits."""
        if not self._waiting:
            return None
        order = self._waiting.pop(0)
        return replace(order, checkpoint=self._checkpoints.latest(order.pack))

    def again(self, order: PackOrder) -> None:
        """Queues a pack, to continue from its last checkpoint."""
        self._waiting.append(replace(order, checkpoint=None))

    def split(self, order: PackOrder) -> None:
        """Queues both halves of a pack, each from its start."""
        self.finished(order.pack)
        half = len(order.tasks) // 2
        self._waiting.append(PackOrder(f"{order.pack}a", order.tasks[:half]))
        self._waiting.append(PackOrder(f"{order.pack}b", order.tasks[half:]))

    def checkpoint(self, order: PackOrder, state: bytes) -> None:
        """Writes a pack's checkpoint, and resets its count of lost trainers: the pack has made progress."""
        self._checkpoints.put(order, state)
        self.got_further(order.pack)

    def finished(self, pack: str) -> None:
        """Drops a pack's checkpoint and its losses."""
        self._checkpoints.remove(pack)
        self._losses.pop(pack, None)

    def got_further(self, pack: str) -> None:
        """Resets the trainers that this pack has lost, and those lost in a row."""
        self._losses.pop(pack, None)
        self.n_losses_in_a_row = 0

    def count_loss(self, pack: str) -> int:
        """Counts the loss of a pack's trainer; returns the losses since the pack last made progress."""
        self.n_losses_in_a_row += 1
        self._losses[pack] = self._losses.get(pack, 0) + 1
        return self._losses[pack]
