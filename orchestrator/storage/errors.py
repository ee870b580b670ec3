"""What stops a sweep that was begun: its storage, or a cause that the sweep cannot repair. Light to import."""

from attnsweep.workloads.errors import UserError


class StoreError(UserError):
    """A disk or an object store that does not do what it was asked."""


class SweepError(RuntimeError):
    """A sweep that cannot go on. Committed rows stay; `attnsweep resume` continues once the cause is repaired.

    Args:
        message: What happened.
        path: The sweep's place, whose text is what one types to resume it.
    """

    def __init__(self, message: str, path: object) -> None:
        super().__init__(message)
        self.path = path


class PoolError(RuntimeError):
    """Trainers that cannot be started, or a pool that cannot go on. The message is one line."""
