"""The question of `mission` at trials drawn at random: their rates are those of the space."""

from attnsweep.search_spaces import Sweep
from attnsweep.search_spaces.catalog import mission


def sweep() -> Sweep:
    """`mission` with random trials."""
    return mission.sweep().but(
        name="mission_random",
        description="translators at random over init_sigma, layer_norm_eps, attention_scale, window, num_pos",
        sampler="random",
    )
