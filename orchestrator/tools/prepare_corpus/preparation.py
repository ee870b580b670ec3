"""Turns raw pairs of sentences into a corpus: drops unusable rows, splits sentences into words, makes parts and
vocabularies.

Axis: N sentence pair.
"""

from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.tools.prepare_corpus.raw_text import RawPairs
from attnsweep.orchestrator.tools.prepare_corpus.rows import (
    Reasons,
    in_words,
    mark_duplicates,
    read_texts,
    refuse_none,
    shares,
    unknown_share,
)
from attnsweep.orchestrator.tools.prepare_corpus.vocabulary import Sentences, learn_vocabulary, split
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.translation.corpus import (
    PART_NAMES,
    SPECIALS,
    TEST,
    TRAIN,
    UNK,
    VALID,
    Corpus,
    make_corpus,
    make_side,
)

_REASONS = ("not_utf8", "not_text", "empty_side", "too_long", "duplicate")
_MOST = 2**31 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparationSettings:
    """The settings for preparing a corpus: which words and sentences are kept, and which are held out.

    Attributes:
        min_frequency: Words rarer than this in the training part become unknown words.
        longest: The most words of a sentence that is kept, EOS not counted.
        held_out: Share of the source sentences held out; half for validation, half for test.
        lowercase: Whether text is lowercased.
        seed: The seed of the choice of held-out sentences.

    Raises:
        UserError: If a value is out of its range.
    """

    min_frequency: int = 2
    longest: int = 24
    held_out: float = 0.1
    lowercase: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for flag, value in (("--min-frequency", self.min_frequency), ("--longest", self.longest)):
            if not 1 <= value <= _MOST:
                raise UserError(
                    flag, given=value, expected=f"a whole number from 1 to {_MOST}", fix="give a number in this range"
                )
        if not 0 < self.held_out < 1:
            raise UserError(
                "--held-out",
                given=self.held_out,
                expected="a share between 0 and 1",
                fix="write for example --held-out 0.1",
            )


class BySide(NamedTuple):
    """A pair of numbers: one for the source language, one for the target language."""

    source: float
    target: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparationReport:
    """The report on a prepared corpus: counts of used and dropped rows, and statistics.

    Attributes:
        rows: The number of rows of the file.
        kept: The number of pairs in the corpus.
        dropped: The number of dropped rows by the first reason that applies; they sum to `rows` minus `kept`.
        pairs: The number of pairs by part.
        words: The sizes of the vocabularies, specials included.
        unknown_share: The share of words that are not in the vocabulary, by part.
        mean_length: The mean number of words per sentence, EOS not counted.
    """

    rows: int
    kept: int
    dropped: dict[str, int]
    pairs: dict[str, int]
    words: BySide
    unknown_share: dict[str, BySide]
    mean_length: BySide

    def to_dict(self) -> dict[str, object]:
        """Returns the report on the corpus as plain values for JSON."""
        content = asdict(self)
        content["words"] = self.words._asdict()
        content["mean_length"] = self.mean_length._asdict()
        content["unknown_share"] = {part: share._asdict() for part, share in self.unknown_share.items()}
        return content


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedCorpus:
    """A corpus and the report of its preparation.

    Attributes:
        corpus: The corpus as `read_corpus` will return it.
        source, target: The sentences of each side, (N,), without EOS and padding.
        report: The counts of used and dropped rows, and statistics.
    """

    corpus: Corpus
    source: pa.ListArray
    target: pa.ListArray
    report: PreparationReport


def prepare(raw: RawPairs, settings: PreparationSettings) -> PreparedCorpus:
    """Builds a corpus from raw pairs of sentences: drops unusable rows, splits sentences into words, and makes parts
    and vocabularies.

    Raises:
        UserError: If no row can be used, or a part or a vocabulary is empty.
    """
    usable = _usable(raw, settings)
    part = _parts(usable.sides[0], settings)
    pairs = {name: int((part == number).sum()) for number, name in enumerate(PART_NAMES)}
    if not all(pairs.values()):
        raise UserError(
            "--held-out",
            given=settings.held_out,
            expected="a share that leaves sentence pairs in every part, unlike this one, which gives"
            f" {in_words(pairs)}",
            fix="choose another share or --seed, or give more sentences",
        )
    sides = [_with_vocabulary(raw.names[index], usable, index, part == TRAIN, settings) for index in range(2)]
    source, target = sides
    return PreparedCorpus(
        corpus=make_corpus(make_side(source.words, source.numbers), make_side(target.words, target.numbers), part),
        source=source.numbers,
        target=target.numbers,
        report=PreparationReport(
            rows=len(part) + sum(usable.dropped.values()),
            kept=len(part),
            dropped=usable.dropped,
            pairs=pairs,
            words=BySide(len(source.words), len(target.words)),
            unknown_share={
                name: BySide(*(unknown_share(side.filter(part == number), UNK) for side in sides))
                for number, name in enumerate(PART_NAMES)
            },
            mean_length=BySide(float(source.lengths.mean()), float(target.lengths.mean())),
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Usable:
    """The sentence pairs that are kept, and how many pairs were dropped for each reason.

    Attributes:
        texts, sides: The texts (N,) and the split sentences of the source and of the target.
        dropped: The number of dropped pairs by reason.
    """

    texts: list[pa.LargeStringArray]
    sides: list[Sentences]
    dropped: dict[str, int]


def _usable(raw: RawPairs, settings: PreparationSettings) -> _Usable:
    reasons = Reasons(len(raw.source))
    texts = read_texts([raw.source, raw.target], reasons)
    sides = [split(column.to_pylist(), "words", lowercase=settings.lowercase) for column in texts]
    for side in sides:
        reasons.mark("empty_side", side.lengths == 0)
    for side in sides:
        reasons.mark("too_long", side.lengths > settings.longest)
    mark_duplicates(sides, reasons)
    dropped = {"wrong_number_of_fields": raw.n_wrong_fields, **{reason: reasons.count(reason) for reason in _REASONS}}
    kept = reasons.kept
    refuse_none(dropped, kept, "pairs of sentences", "see --source, --target and --longest")
    return _Usable(
        texts=[column.filter(pa.array(kept)) for column in texts],
        sides=[side.filter(kept) for side in sides],
        dropped=dropped,
    )


def _with_vocabulary(
    name: str, usable: _Usable, index: int, is_trained: NDArray[np.bool_], settings: PreparationSettings
) -> Sentences:
    """Returns the sentences of one language with numbered words. The vocabulary comes from the training part alone."""
    texts = usable.texts[index].filter(pa.array(is_trained)).to_pylist()
    words = learn_vocabulary(
        texts, "words", min_frequency=settings.min_frequency, lowercase=settings.lowercase, specials=SPECIALS
    )
    if len(words) == len(SPECIALS):
        raise UserError(
            "--min-frequency",
            given=settings.min_frequency,
            expected=f"a frequency that at least one word of {name} reaches",
            fix="lower the frequency, or give more sentences",
        )
    return usable.sides[index].renumber(words, UNK)


def _parts(source: Sentences, settings: PreparationSettings) -> NDArray[np.int64]:
    """Assigns each of the N pairs to training, validation or test; returns (N,).

    It depends on the source sentence and the seed alone, not on the other rows of the file.
    """
    share = shares(source, settings.seed)
    return np.select([share < settings.held_out / 2, share < settings.held_out], [TEST, VALID], TRAIN)
