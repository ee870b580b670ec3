"""The formal languages FIRST and PARITY. An encoder can represent them exactly but hardly learns them by default.

Source: Chiang & Cholak 2022, "Overcoming a theoretical limitation of self-attention".
"""

from attnsweep.workloads.formal_languages.parameters import FormalLanguagesParameters
from attnsweep.workloads.formal_languages.workload import FormalLanguages

__all__ = ["FormalLanguages", "FormalLanguagesParameters"]
