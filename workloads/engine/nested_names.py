"""Dictionaries in a dictionary, flat: `<prefix>/<name>`."""

from collections.abc import Mapping
from typing import TypeVar

V = TypeVar("V")


def prefixed(prefix: str, values: Mapping[str, V]) -> dict[str, V]:
    """The same values under `<prefix>/<name>`."""
    return {f"{prefix}/{name}": value for name, value in values.items()}


def under(prefix: str, values: Mapping[str, V]) -> dict[str, V]:
    """What `prefixed` put there, by its own names; empty where it put nothing."""
    start = f"{prefix}/"
    return {name.removeprefix(start): value for name, value in values.items() if name.startswith(start)}
