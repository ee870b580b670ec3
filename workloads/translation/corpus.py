"""A parallel corpus as arrays of word numbers, and the file that stores a prepared one, whose columns `source` and
`target` have words without EOS and PAD. Axes: N sentence pair, T target token.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.workloads.prepared_files import Format, checked_rows, digest_of, part_numbers

SPECIALS = ("<pad>", "<sos>", "<eos>", "<unk>")
PAD, SOS, EOS, UNK = range(4)

TRAIN, VALID, TEST = range(3)
"""The parts of a corpus: for training, for probes, and for translation at the end. They have no common source."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Side:
    """The sentences in one of the two languages.

    Attributes:
        words: The vocabulary: `SPECIALS`, then words by falling frequency in the training part.
        tokens: (n_pairs, longest) int64, each sentence's words, then EOS, then PAD.
        lengths: (n_pairs,) int64, the number of tokens, EOS included.
    """

    words: tuple[str, ...]
    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Gold:
    """Annotations, which real text lacks. Positions count tokens from 0.

    Attributes:
        source_arcs, target_arcs: (n_arcs, 4) int64 rows (sentence, relation, dependent, governor), sorted by sentence.
        alignment: (n_pairs, n_target_tokens) int64, the source position that a target token translates; -1 if there is
            none, and at PAD.
        token_nats: (n_pairs, n_target_tokens) float64, -log p(token | source, tokens before) in nats: 0 if the source
            determines the token, and at PAD.
        target_nats: (n_pairs,) float64, -log p(target sentence) in nats, the source not given.
    """

    relations: tuple[str, ...]
    source_arcs: NDArray[np.int64]
    target_arcs: NDArray[np.int64]
    alignment: NDArray[np.int64]
    token_nats: NDArray[np.float64]
    target_nats: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Corpus:
    """Sentence pairs.

    Attributes:
        part: (n_pairs,) int64 among `TRAIN`, `VALID`, `TEST`.
        gold: `None` for real text.
        digest: A hash of the others.
    """

    source: Side
    target: Side
    part: NDArray[np.int64]
    gold: Gold | None
    digest: str


def preceding(tokens_NT: NDArray[np.int64]) -> NDArray[np.int64]:
    """The token before each target token, SOS before the first: what the decoder reads."""
    return np.concatenate([np.full((len(tokens_NT), 1), SOS), tokens_NT[:, :-1]], axis=1)


PART_NAMES = ("train", "valid", "test")
"""In the order of `TRAIN`, `VALID`, `TEST`."""


def make_side(words: tuple[str, ...], sentences: pa.ListArray) -> Side:
    """From lists of word numbers: appends EOS, and pads sentences to the longest."""
    lengths = sentences.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    tokens = np.full((len(lengths), int(lengths.max(initial=0)) + 1), PAD, dtype=np.int64)
    tokens[np.arange(tokens.shape[1]) < lengths[:, None]] = sentences.flatten().to_numpy()
    tokens[np.arange(len(lengths)), lengths] = EOS
    return Side(words=words, tokens=tokens, lengths=lengths + 1)


def make_corpus(source: Side, target: Side, part: NDArray[np.int64], gold: Gold | None = None) -> Corpus:
    annotations: list[Any] = []
    if gold is not None:
        annotations += [gold.relations, gold.source_arcs, gold.target_arcs, gold.alignment]
        annotations += [gold.token_nats, gold.target_nats]
    of_source, of_target = ((side.words, side.tokens, side.lengths) for side in (source, target))
    digest = digest_of(*of_source, *of_target, part, *annotations)
    return Corpus(source=source, target=target, part=part, gold=gold, digest=digest)


def _assembled(table: pa.Table, words: dict[str, list[str]]) -> Corpus:
    source, target = (
        make_side(tuple(words[name]), checked_rows(table, name, words[name], SPECIALS)) for name in ("source", "target")
    )
    return make_corpus(source, target, part_numbers(table, PART_NAMES))


CORPUS_FILE = Format(
    noun="prepared corpus",
    prepare="attnsweep prepare-corpus FILE --out CORPUS.parquet",
    version_key="corpus_schema_version",
    columns=("source", "target"),
    part_names=PART_NAMES,
    assembled=_assembled,
)


def read_corpus(path: str | Path) -> Corpus:
    """Reads what `attnsweep prepare-corpus` wrote; refuses other files, and one changed since."""
    return CORPUS_FILE.read(path)
