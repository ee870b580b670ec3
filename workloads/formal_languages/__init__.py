"""The formal languages FIRST and PARITY, which a transformer encoder can decide exactly, but hardly learns with default
settings. Source: Chiang & Cholak 2022, "Overcoming a theoretical limitation of self-attention"."""

from attnsweep.workloads.formal_languages.parameters import FormalLanguagesParameters
from attnsweep.workloads.formal_languages.workload import FormalLanguages

__all__ = ["FormalLanguages", "FormalLanguagesParameters"]
