"""One-block translators: which roles do their attention heads take (Conti 2024; Voita et al. 2019)?"""

from attnsweep.workloads.translation.parameters import TranslationParameters
from attnsweep.workloads.translation.workload import Translation

__all__ = ["Translation", "TranslationParameters"]
