"""From raw pairs to a corpus: counts unusable rows, splits sentences into words, makes parts and vocabularies.

Axis: N sentence pair.
"""

import hashlib
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from attnsweep.orchestrator.tools.prepare_corpus.raw_text import RawPairs
from attnsweep.orchestrator.tools.prepare_corpus.words import Sentences, learn_vocabulary, split_into_words
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.translation.corpus import SPECIALS, TEST, TRAIN, UNK, VALID, Corpus
from attnsweep.workloads.translation.prepared import PART_NAMES, make_corpus, make_side

_REASONS = ("not_utf8", "not_text", "empty_side", "too_long", "duplicate")
_NO_TEXT = r"[\p{Cc}\x{FFFD}]"
"""Control characters, and the replacement character, which another program wrote for bytes it could not decode."""
_MOST = 2**31 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparationSettings:
    """How a corpus is prepared.

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
                raise UserError(flag, given=value, expected=f"a whole number from 1 to {_MOST}", fix="change it")
        if not 0 < self.held_out < 1:
            raise UserError(
                "--held-out",
                given=self.held_out,
                expected="a share between 0 and 1",
                fix="for example --held-out 0.1",
            )


class BySide(NamedTuple):
    """One number per language."""

    source: float
    target: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparationReport:
    """How many rows were used, and why others were not.

    Attributes:
        rows: Rows of the file.
        kept: Pairs in the corpus.
        dropped: Dropped rows, by the first reason that applies; they sum to `rows` minus `kept`.
        pairs: Pairs by part.
        words: Sizes of the vocabularies, specials included.
        unknown_share: Share of words that are not in the vocabulary, by part.
        mean_length: Mean words per sentence, EOS not counted.
    """

    rows: int
    kept: int
    dropped: dict[str, int]
    pairs: dict[str, int]
    words: BySide
    unknown_share: dict[str, BySide]
    mean_length: BySide

    def to_dict(self) -> dict[str, object]:
        """Plain content for JSON."""
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
        source, target: (N,) its sentences without EOS and padding.
        report: How many rows were used, and why others were not.
    """

    corpus: Corpus
    source: pa.ListArray
    target: pa.ListArray
    report: PreparationReport


def prepare(raw: RawPairs, settings: PreparationSettings) -> PreparedCorpus:
    """Makes a corpus of raw pairs.

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
            expected=f"a share that leaves pairs in every part, not {_counts(pairs)}",
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
                name: BySide(*(_unknown_share(side.filter(part == number)) for side in sides))
                for number, name in enumerate(PART_NAMES)
            },
            mean_length=BySide(float(source.lengths.mean()), float(target.lengths.mean())),
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Usable:
    """The pairs that are kept: each side's (N,) texts and sentences; and the number of dropped pairs by reason."""

    texts: list[pa.LargeStringArray]
    sides: list[Sentences]
    dropped: dict[str, int]


def _usable(raw: RawPairs, settings: PreparationSettings) -> _Usable:
    reason = np.full(len(raw.source), "", dtype=object)
    is_utf8 = _is_utf8(raw.source) & _is_utf8(raw.target)
    _mark(reason, "not_utf8", ~is_utf8)
    texts = [_texts(column, is_utf8) for column in (raw.source, raw.target)]
    for column in texts:
        _mark(reason, "not_text", _mask(pc.match_substring_regex(column, _NO_TEXT)))
    sides = [split_into_words(column.to_pylist(), lowercase=settings.lowercase) for column in texts]
    for side in sides:
        _mark(reason, "empty_side", side.lengths == 0)
    for side in sides:
        _mark(reason, "too_long", side.lengths > settings.longest)
    _mark_duplicates(reason, sides)
    counts = {each: int((reason == each).sum()) for each in _REASONS}
    dropped = {"wrong_number_of_fields": raw.n_wrong_fields, **counts}
    kept = reason == ""
    if not kept.any():
        why = _counts({name: count for name, count in dropped.items() if count})
        raise UserError(
            "FILE",
            given=f"{sum(dropped.values())} rows, of which none can be used" + (f" ({why})" if why else ""),
            expected="pairs of sentences",
            fix="see --source, --target and --longest",
        )
    return _Usable(
        texts=[column.filter(pa.array(kept)) for column in texts],
        sides=[side.filter(kept) for side in sides],
        dropped=dropped,
    )


def _with_vocabulary(
    name: str, usable: _Usable, index: int, is_trained: NDArray[np.bool_], settings: PreparationSettings
) -> Sentences:
    """One side, with words numbered by the vocabulary of its training part."""
    texts = usable.texts[index].filter(pa.array(is_trained)).to_pylist()
    words = learn_vocabulary(texts, min_frequency=settings.min_frequency, lowercase=settings.lowercase)
    if len(words) == len(SPECIALS):
        raise UserError(
            "--min-frequency",
            given=settings.min_frequency,
            expected=f"a number that some word of {name} reaches",
            fix="lower it, or give more sentences",
        )
    return usable.sides[index].renumber(words)


def _mark(reason: NDArray[np.object_], name: str, mask: NDArray[np.bool_]) -> None:
    reason[(reason == "") & mask] = name


def _is_utf8(column: pa.LargeBinaryArray) -> NDArray[np.bool_]:
    try:
        column.cast(pa.large_string())
    except pa.ArrowInvalid:
        return np.array([each is None or _decodes(each) for each in column.to_pylist()])
    return np.ones(len(column), dtype=bool)


def _decodes(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _texts(column: pa.LargeBinaryArray, is_utf8: NDArray[np.bool_]) -> pa.LargeStringArray:
    """(N,) trimmed texts; empty where a text is missing or cannot be decoded."""
    whole = pc.fill_null(pc.if_else(pa.array(is_utf8), column, b""), b"")
    return pc.utf8_trim_whitespace(whole.cast(pa.large_string()))


def _mark_duplicates(reason: NDArray[np.object_], sides: list[Sentences]) -> None:
    """Marks pairs with the same words as an earlier pair."""
    rows = np.flatnonzero(reason == "")
    source, target = (_numbered(side.joined())[rows] for side in sides)
    _, first = np.unique(source * len(reason) + target, return_index=True)
    is_later = np.zeros(len(reason), dtype=bool)
    is_later[rows] = True
    is_later[rows[first]] = False
    _mark(reason, "duplicate", is_later)


def _parts(source: Sentences, settings: PreparationSettings) -> NDArray[np.int64]:
    """(N,) the part of each pair: a function of its source sentence and the seed, whatever else is in the file."""
    sentences = source.joined().dictionary_encode()
    share = np.array([_share_of(each, settings.seed) for each in sentences.dictionary.to_pylist()])
    of_sentence = np.select([share < settings.held_out / 2, share < settings.held_out], [TEST, VALID], TRAIN)
    parts: NDArray[np.int64] = of_sentence[sentences.indices.to_numpy()].astype(np.int64)
    return parts


def _share_of(sentence: str, seed: int) -> float:
    """A pseudo-random number in 0..1, a function of the sentence and the seed."""
    digest = hashlib.blake2b(f"{seed} {sentence}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _unknown_share(side: Sentences) -> float:
    return float((side.numbers.flatten().to_numpy() == UNK).mean())


def _numbered(texts: pa.StringArray) -> NDArray[np.int64]:
    return texts.dictionary_encode().indices.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _mask(array: pa.BooleanArray) -> NDArray[np.bool_]:
    return array.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _counts(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in numbers.items())
