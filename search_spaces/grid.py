"""The grid of a sweep: the values of the `grid` sampler on each axis."""

import math

from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.sweep import Sweep


def grid_axes(sweep: Sweep) -> dict[str, list[Scalar]]:
    """The values of what is drawn: of each varied parameter, and of each `Zip`."""
    return {name: dimension.grid() for name, dimension in sweep.drawn().items()}


def grid_size(sweep: Sweep) -> int:
    """How many points the grid has."""
    return math.prod(len(values) for values in grid_axes(sweep).values())
