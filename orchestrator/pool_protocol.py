"""The contract between the sweep loop and whatever trains its packs."""

from typing import Protocol

from orchestrator.messages import PackOrder, Reports


class Pool(Protocol):
    """Trainers of one sweep, each with one pack at a time.

    Implementers: an order comes back as `Trained`, `Raised`, `HandedBack` or `TrainerLost` exactly once, and leaves
    `running` with that; as `Progress` any number of times before. The rows of a training depend on its task alone.
    What a training raises is a report. Exceptions are KeyboardInterrupt, and PoolError where the pool cannot go on.
    """

    @property
    def n_trainers(self) -> int:
        """How many packs can train at once."""

    @property
    def n_placed(self) -> int:
        """How many trainers are up."""

    @property
    def has_idle(self) -> bool:
        """Whether a pack can be handed out."""

    @property
    def running(self) -> list[PackOrder]:
        """The packs being trained."""

    def train(self, order: PackOrder) -> None:
        """Hands a pack to an idle trainer."""

    def reports(self, timeout: float) -> Reports:
        """What came in within about `timeout` seconds. Packs that only made progress are trained on."""

    def hand_back(self, seconds: float) -> Reports:
        """What comes in when all trainers are asked for their packs; those that do not answer in time are left."""

    def close(self) -> None:
        """Ends all trainers at once, with what they are training. Idempotent."""
