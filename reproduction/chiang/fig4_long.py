"""Figure 4 of Chiang & Cholak 2022, ten times as long: do its claims hold once all lengths are learned?"""

from pathlib import Path

from rich.console import Console

from attnsweep.reproduction.chiang.fig4 import compare
from attnsweep.reproduction.comparison import Comparison
from attnsweep.reproduction.swept import swept


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains 4 lengths x 2 scales x 20 seeds for 1,000 epochs."""
    return compare(swept("chiang_fig4_long", directory, console), directory, "chiang-fig4-long")
