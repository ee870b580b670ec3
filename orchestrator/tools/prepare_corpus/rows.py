"""Which rows of a text are kept, and what `prepare-corpus` prints of them. Axis: N row."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.tools.prepare_corpus.reading import Columns
from attnsweep.orchestrator.tools.prepare_corpus.vocabulary import Sentences, Unit, split
from attnsweep.workloads.errors import UserError

_NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ufffd]")
"""Control characters, and what stands for bytes that could not be decoded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparationSettings:
    """Which words and rows are kept, and which rows are held out from training.

    Attributes:
        min_frequency: Words rarer than this in the training part become unknown words.
        longest: In words or characters; a longer row is dropped.
        held_out: The share of the rows held out; of pairs half for validation, half for test.
    """

    unit: Unit = "words"
    min_frequency: int = 2
    longest: int | None = None
    held_out: float = 0.1
    lowercase: bool = True
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A corpus that was written, and the command to try next."""

    out: Path
    digest: str
    facts: Mapping[str, Any]
    next_command: str

    def to_json(self) -> str:
        content = {"corpus": str(self.out), "digest": self.digest, **self.facts, "next": self.next_command}
        return json.dumps(content, allow_nan=False)

    def print(self, console: Console) -> None:
        lines = {name: in_words(value) for name, value in self.facts.items() if name not in ("origin", "settings")}
        lines |= {"corpus": f"{self.out} (digest {self.digest})", "next": self.next_command}
        for name, words in lines.items():
            console.print(f"{name.replace('_', ' '):14} {words}", soft_wrap=True, markup=False, highlight=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class UsableRows:
    """By column the rows that are kept, as texts (N,) and as words; and how many were dropped, by reason."""

    texts: list[NDArray[np.object_]]
    sentences: list[Sentences]
    dropped: dict[str, int]

    def counts(self) -> dict[str, Any]:
        kept = len(self.texts[0])
        return {"rows": kept + sum(self.dropped.values()), "kept": kept, "dropped": self.dropped}


def usable_rows(columns: Columns, settings: PreparationSettings) -> UsableRows:
    """Raises UserError if no row can be used, with the reasons."""
    texts = [np.array([text.strip() for text in column], dtype=object) for column in columns.texts]
    sentences = [split(column.tolist(), settings.unit, lowercase=settings.lowercase) for column in texts]
    lengths = zip(*(side.lengths.tolist() for side in sentences), strict=True)
    words = zip(*(side.joined() for side in sentences), strict=True)
    reasons: list[str] = []
    seen: set[tuple[str, ...]] = set()
    for row, n_words, row_words in zip(zip(*texts, strict=True), lengths, words, strict=True):
        if any(map(_NO_TEXT.search, row)):
            reasons.append("not_text")
        elif not all(n_words):
            reasons.append("empty")
        elif settings.longest is not None and max(n_words) > settings.longest:
            reasons.append("too_long")
        else:
            reasons.append("duplicate" if row_words in seen else "")
            seen.add(row_words)
    counts = Counter(reasons)
    dropped = {reason: counts[reason] for reason in ("not_text", "empty", "too_long", "duplicate")}
    dropped = {"wrong_number_of_fields": columns.n_wrong_fields, **dropped}
    if not counts[""]:
        given = f"a file of {sum(dropped.values())} rows, none of which can be used ({in_words(dropped)})"
        raise UserError("FILE", given=given, expected="rows of text", fix="see the options for columns and --longest")
    is_kept_N = np.array(reasons) == ""
    return UsableRows(
        texts=[column[is_kept_N] for column in texts],
        sentences=[side.filter(is_kept_N) for side in sentences],
        dropped=dropped,
    )


def shares(sentences: Sentences, seed: int) -> NDArray[np.float64]:
    """(N,) a pseudo-random number from 0 to 1 for each sentence, equal for equal ones."""
    digests = (hashlib.blake2b(f"{seed} {text}".encode(), digest_size=8).digest() for text in sentences.joined())
    return np.array([int.from_bytes(digest, "big") / 2**64 for digest in digests])


def in_words(facts: object) -> str:
    """Such as `not text 3, duplicate 12`, without counts of 0."""
    if isinstance(facts, Mapping):
        words = (f"{name} {in_words(value)}" for name, value in facts.items() if value != 0 or type(value) is float)
        return ", ".join(words).replace("_", " ") or "none"
    return f"{facts:.3g}" if isinstance(facts, float) else f"{facts:,}"
