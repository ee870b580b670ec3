"""The sweep `mission_pairs` with trials drawn by TPE, which looks for the lowest stuck rate."""

from attnsweep.search_spaces import Sweep
from attnsweep.search_spaces.catalog import mission_pairs


def sweep() -> Sweep:
    """Samples the space of `mission_pairs` with TPE: 64 trials x 4 replicates."""
    return mission_pairs.sweep().but(
        name="mission_pairs_tpe",
        description="full models by TPE on the stuck rate, over the space of `mission_pairs`",
        sampler="tpe",
        trials=64,
    )
