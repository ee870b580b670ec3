"""What must be there."""

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """The value, which the test expects to be there."""
    assert value is not None
    return value
