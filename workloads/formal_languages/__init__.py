"""The formal languages FIRST and PARITY, which a transformer encoder can decide exactly. It learns FIRST, though often
not for longer strings, and PARITY only on short ones. Source: Chiang & Cholak 2022, "Overcoming a theoretical
limitation of self-attention"."""

from attnsweep.workloads.formal_languages.parameters import FormalLanguagesParameters
from attnsweep.workloads.formal_languages.workload import FormalLanguages

__all__ = ["FormalLanguages", "FormalLanguagesParameters"]
