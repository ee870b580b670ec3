"""Search spaces and sweeps as immutable objects. They are written in Python or YAML, and stored as JSON without
loss."""

if __name__ != "attnsweep.search_spaces":
    raise ImportError("search_spaces cannot be imported by this name: import attnsweep, or attnsweep.search_spaces")

from attnsweep.search_spaces.dimensions import Categorical, Conditional, Derived, Float, Int, Zip
from attnsweep.search_spaces.measured import LossQuantile, OnsetQuantile, Rate, StuckRate
from attnsweep.search_spaces.pruners import Pruner
from attnsweep.search_spaces.replication import Sequential
from attnsweep.search_spaces.sweep import Sweep

__all__ = [
    "Categorical",
    "Conditional",
    "Derived",
    "Float",
    "Int",
    "LossQuantile",
    "OnsetQuantile",
    "Pruner",
    "Rate",
    "Sequential",
    "StuckRate",
    "Sweep",
    "Zip",
]
