"""The sweep `mission` with trials drawn at random, whose rates are those of the whole space."""

from attnsweep.search_spaces import Sweep
from attnsweep.search_spaces.catalog import mission


def sweep() -> Sweep:
    """Samples the space of `mission` at random."""
    return mission.sweep().but(
        name="mission_random",
        description="translators at random over init_sigma, layer_norm_eps, attention_scale, window, num_pos",
        sampler="random",
    )
