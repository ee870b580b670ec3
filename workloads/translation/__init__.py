"""Translation by one-block encoder-decoders: which heads take which role (Conti 2024; Voita et al. 2019)."""

from workloads.translation.parameters import TranslationParameters
from workloads.translation.workload import Translation

__all__ = ["Translation", "TranslationParameters"]
