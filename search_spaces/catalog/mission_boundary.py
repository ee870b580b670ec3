"""The sweep `mission` with trials near the border between stuck and free translators."""

from attnsweep.search_spaces import Sweep
from attnsweep.search_spaces.catalog import mission


def sweep() -> Sweep:
    """Samples the space of `mission` near the border between stuck and free trainings."""
    return mission.sweep().but(
        name="mission_boundary",
        description="translators at the border of being stuck, over the space of `mission`",
        sampler="boundary",
    )
