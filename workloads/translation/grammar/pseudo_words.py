"""Pronounceable stems in any number, no two alike: the grammar's words beyond those written by hand."""

from collections.abc import Iterator

_SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")
_SCATTER = 1213
"""Coprime to the number of syllables, so that multiplication permutes the stems: neighbours do not look alike."""


def stems(word_class: str) -> Iterator[str]:
    """Stems of two syllables, then of three and so on, in a fixed order without end that depends on the class.

    The stems of one class differ from each other, not from those of another class.
    """
    n_syllables = 2
    start = sum(map(ord, word_class)) * _SCATTER // 2
    while True:
        n_stems = len(_SYLLABLES) ** n_syllables
        for i in range(n_stems):
            yield _spelled((start + i * _SCATTER) % n_stems, n_syllables)
        n_syllables += 1


def _spelled(number: int, n_syllables: int) -> str:
    syllables = []
    for _ in range(n_syllables):
        number, i = divmod(number, len(_SYLLABLES))
        syllables.append(_SYLLABLES[i])
    return "".join(syllables)
