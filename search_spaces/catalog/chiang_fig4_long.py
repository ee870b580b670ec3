"""FIRST as Chiang & Cholak 2022 train it, for 1,000 epochs: after 100 the longer strings are not learned yet."""

from attnsweep.search_spaces import Sweep
from attnsweep.search_spaces.catalog import chiang_fig4


def sweep() -> Sweep:
    """Repeats `chiang_fig4` for ten times as long, with a probe every 20 of the paper's epochs of 100 strings."""
    spec = chiang_fig4.sweep().fix({"n_epochs": 50, "steps_per_epoch": 2000})
    return spec.but(
        name="chiang_fig4_long",
        description="chiang_fig4 for 1,000 epochs",
    )
