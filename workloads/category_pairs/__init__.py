"""Category pairs: attention models that learn a function of the previous and the current category in strings of
independent random categories, and often get stuck where the gradient vanishes.

Source: Shin & Matzinger 2025, "Is logical analysis performed by transformers taking place in self-attention or in the
fully connected part?"; formulas and corrections: docs/notes/2026-11-21-theory.md.
"""

from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.category_pairs.workload import CategoryPairs

__all__ = ["CategoryPairs", "CategoryPairsParameters"]
