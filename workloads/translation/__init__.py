"""The workload of one-block translators: which heads take which role (Conti 2024; Voita et al. 2019)."""

from attnsweep.workloads.translation.parameters import TranslationParameters
from attnsweep.workloads.translation.workload import Translation

__all__ = ["Translation", "TranslationParameters"]
