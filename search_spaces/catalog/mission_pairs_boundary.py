"""The sweep `mission_pairs` with trials near the border between stuck and free models."""

from attnsweep.search_spaces import Sweep
from attnsweep.search_spaces.catalog import mission_pairs


def sweep() -> Sweep:
    """Samples the space of `mission_pairs` near the border between stuck and free: 64 trials x 4 replicates."""
    return mission_pairs.sweep().but(
        name="mission_pairs_boundary",
        description="full models at the border of being stuck, over the space of `mission_pairs`",
        sampler="boundary",
        trials=64,
    )
