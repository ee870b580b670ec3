"""The contract between the sweep loop and whatever trains its packs."""

from collections.abc import Sequence
from typing import Protocol

from attnsweep.orchestrator.training.messages import PackOrder, Reports


class Pool(Protocol):
    """Trainers of one sweep, each with one pack at a time.

    Implementers: an order comes back any number of times as `Progress`, or as `Probed` if it `waits`, then exactly once
    as `Trained`, `Raised`, `HandedBack` or `TrainerLost`, after which it is no longer in `running`. The rows of a
    training depend on its task alone, and on where it is pruned. An exception of a training becomes a report. A pool
    itself raises only KeyboardInterrupt, and PoolError if it cannot continue.
    """

    @property
    def n_trainers(self) -> int:
        """How many packs can train at once."""

    @property
    def waiting_for(self) -> str:
        """What has to come before any pack can train, in words; empty once one can."""

    @property
    def has_idle(self) -> bool:
        """Whether a pack can be handed out."""

    @property
    def accelerator(self) -> str:
        """The type of the idle trainer that gets the next pack: the model of its GPU, or `cpu`."""

    @property
    def running(self) -> list[PackOrder]:
        """The packs being trained."""

    def notices(self) -> list[str]:
        """What the user should know of the trainers since the last call."""

    def train(self, order: PackOrder) -> None:
        """Hands a pack to an idle trainer. It comes back without the state that it continues from."""

    def answer(self, order: PackOrder, pruned: Sequence[int]) -> None:
        """Lets a pack that was reported as `Probed` train on, without the trainings at these positions."""

    def reports(self, timeout: float) -> Reports:
        """The reports received within about `timeout` seconds. Packs that only made progress continue to train; those
        reported as `Probed` wait for `answer`."""

    def hand_back(self, seconds: float) -> Reports:
        """Asks all trainers for their packs; returns the reports received in time, and leaves the other packs."""

    def close(self) -> None:
        """Ends all trainers at once and drops their packs. Idempotent."""
