"""The grid of a sweep: the values of each axis under the `grid` sampler."""

import math

from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.sweep import Sweep


def grid_axes(sweep: Sweep) -> dict[str, list[Scalar]]:
    """Returns the grid's values along each axis, by the name of the varied parameter or `Zip`."""
    return {name: dimension.grid() for name, dimension in sweep.drawn().items()}


def grid_size(sweep: Sweep) -> int:
    return math.prod(len(values) for values in grid_axes(sweep).values())
