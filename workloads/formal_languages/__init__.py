"""The formal languages FIRST and PARITY. A transformer encoder can decide them exactly, but with default settings
hardly learns them.

Source: Chiang & Cholak 2022, "Overcoming a theoretical limitation of self-attention".
"""

from attnsweep.workloads.formal_languages.parameters import FormalLanguagesParameters
from attnsweep.workloads.formal_languages.workload import FormalLanguages

__all__ = ["FormalLanguages", "FormalLanguagesParameters"]
