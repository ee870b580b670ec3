"""Errors that stop a running sweep. Light to import."""

from attnsweep.workloads.errors import UserError


class StoreError(UserError):
    """A disk or an object store refuses a request: a fault of the machine."""


class StoreMistakeError(StoreError):
    """An object store refuses a request because of what a user has configured: a bucket, an address, credentials."""


class SweepError(RuntimeError):
    """The sweep cannot go on. Committed rows stay; `attnsweep resume` continues once the cause is repaired.

    Args:
        message: What happened.
        path: The sweep's place, as an argument of `attnsweep resume`.
    """

    def __init__(self, message: str, path: object) -> None:
        super().__init__(message)
        self.path = path


class PoolError(RuntimeError):
    """Trainers cannot be started, or the pool cannot go on. The message is one line."""
