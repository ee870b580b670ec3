"""What stops a sweep that was begun. Light to import."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.places.location import Location


class SweepError(RuntimeError):
    """A sweep that cannot go on. What is committed stays; `attnsweep resume` continues once the cause is mended.

    Args:
        message: What happened.
        path: The sweep directory.
    """

    def __init__(self, message: str, path: "Location") -> None:
        super().__init__(message)
        self.path = path


class PoolError(RuntimeError):
    """Trainers that cannot be started, or a pool that cannot go on. The message is one line."""
