"""The combined model in its four flavours at the paper's size (Shin & Matzinger 2025, section 4.1, Figures 2 and 3)."""

from attnsweep.search_spaces import Sweep
from attnsweep.search_spaces.catalog import shin_flavours


def sweep() -> Sweep:
    """Repeats `shin_flavours` with M = 50, 1,000 texts and 50 calls of L-BFGS, 20 iterations each, in two CPU hours."""
    size = {"n_positions": 50, "batch_size": 1000, "n_steps": 1000}
    description = "the combined model in four flavours at the paper's size: M = 50, 1,000 texts"
    return shin_flavours.sweep().fix(size).but(name="shin_flavours_full", description=description)
