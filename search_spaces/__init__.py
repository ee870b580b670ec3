"""What may vary? Sweeps as frozen specs: written as Python functions, resolved to JSON and back without loss."""

from search_spaces.dimensions import Categorical, Conditional, Float, Int
from search_spaces.replication import Sequential
from search_spaces.sweep import LossQuantile, StuckRate, Sweep

__all__ = ["Categorical", "Conditional", "Float", "Int", "LossQuantile", "Sequential", "StuckRate", "Sweep"]
