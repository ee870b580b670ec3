"""`quickstart` with a million trainings: how sharp are the borders of what gets stuck?"""

from attnsweep.search_spaces import Sweep
from attnsweep.search_spaces.catalog import quickstart


def sweep() -> Sweep:
    """Trains 62,500 trials x 16 replicates of system P over init_sigma and learning_rate. For times see
    docs/scale.md.
    """
    return quickstart.sweep().but(
        name="million",
        description="attention on positions only: how sharp are the borders between the ways in which trainings end?",
        trials=62_500,
        replicates=16,
    )
