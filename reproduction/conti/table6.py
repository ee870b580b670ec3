"""Conti 2024, table 6: least distances of eight heads to the families."""

from pathlib import Path

from rich.console import Console

from attnsweep.reproduction.comparison import Comparison
from attnsweep.reproduction.conti.tables import TABLE_6, reproduce_table


def reproduce(directory: Path, console: Console) -> Comparison:
    """The thesis's sampling procedure and the exact optimum."""
    return reproduce_table(TABLE_6, directory, console)
