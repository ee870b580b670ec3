"""The languages that there are. A new one is an import and a line here: docs/languages.md."""

from attnsweep.workloads.formal_languages.first import First
from attnsweep.workloads.formal_languages.language import Language
from attnsweep.workloads.formal_languages.parity import Parity

_EVERY: tuple[Language, ...] = (
    First(),
    Parity(),
)

LANGUAGES: dict[str, Language] = {language.name: language for language in _EVERY}
