"""Formal languages: FIRST and PARITY, which an encoder can represent exactly and, as they come, hardly learns.

Source: Chiang & Cholak 2022, "Overcoming a theoretical limitation of self-attention".
"""

from attnsweep.workloads.formal_languages.parameters import FormalLanguagesParameters
from attnsweep.workloads.formal_languages.workload import FormalLanguages

__all__ = ["FormalLanguages", "FormalLanguagesParameters"]
