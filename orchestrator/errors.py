"""What stops a sweep that was begun. Light to import."""

from pathlib import Path


class SweepError(RuntimeError):
    """A sweep that cannot go on. What is committed stays; `attnsweep resume` continues once the cause is mended.

    Args:
        message: What happened.
        path: The sweep directory.
    """

    def __init__(self, message: str, path: Path) -> None:
        super().__init__(message)
        self.path = path
