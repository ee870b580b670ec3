"""Splits sentences into words or characters, and learns vocabularies, with Hugging Face's tokenizers.

A word is a run of letters, digits and underscores, or a run of other visible characters: `don't` is three words. This
is the library's usual `Whitespace`, so "..." and '?"' are one word each. A character is a code point after NFC.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

# Without it, `tokenizers` warns on stderr whenever the process forks after using threads.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

Unit: TypeAlias = Literal["words", "characters"]

_CHUNK_ROWS = 10_000
"""Encoded at a time: an encoding takes kilobytes, of which only a few bytes of numbers are kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentences:
    """Sentences as the numbers of their words: lists (N,) of int32 indices into `words`."""

    words: tuple[str, ...]
    numbers: pa.ListArray

    @property
    def lengths(self) -> NDArray[np.int64]:
        return pc.list_value_length(self.numbers).to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]

    def joined(self) -> list[str]:
        words = pa.array(self.words, pa.string()).take(self.numbers.flatten())
        return pc.binary_join(pa.ListArray.from_arrays(_offsets(self.lengths), words), " ").to_pylist()  # type: ignore[no-any-return]

    def share_of(self, word: int) -> float:
        return float((self.numbers.flatten().to_numpy() == word).mean())

    def filter(self, mask: NDArray[np.bool_]) -> "Sentences":
        return Sentences(words=self.words, numbers=self.numbers.filter(pa.array(mask)))

    def renumber(self, vocabulary: Sequence[str], unknown: int) -> "Sentences":
        """In another vocabulary."""
        place = {word: number for number, word in enumerate(vocabulary)}
        table = np.array([place.get(word, unknown) for word in self.words], dtype=np.int32)
        numbers = pa.array(table[self.numbers.flatten().to_numpy()])
        return Sentences(words=tuple(vocabulary), numbers=pa.ListArray.from_arrays(_offsets(self.lengths), numbers))


def split(texts: Sequence[str], unit: Unit, *, lowercase: bool) -> Sentences:
    """After Unicode NFC."""
    # Without special tokens, so that an <eos> in a text is text.
    tokenizer = _trained(texts, unit, lowercase=lowercase)
    chunks = [pa.array([], pa.list_(pa.int32()))]
    for start in range(0, len(texts), _CHUNK_ROWS):
        encoded = [row.ids for row in tokenizer.encode_batch_fast(list(texts[start : start + _CHUNK_ROWS]))]
        flat = np.fromiter(chain.from_iterable(encoded), np.int32)
        chunks.append(pa.ListArray.from_arrays(_offsets(np.array([len(ids) for ids in encoded])), pa.array(flat)))
    return Sentences(words=_words(tokenizer), numbers=pa.concat_arrays(chunks))


def learn_vocabulary(
    texts: Sequence[str], unit: Unit, *, min_frequency: int, lowercase: bool, specials: Sequence[str]
) -> tuple[str, ...]:
    """The special tokens, then all words that occur at least `min_frequency` times, the most frequent first."""
    return _words(_trained(texts, unit, min_frequency, specials, lowercase=lowercase))


def _trained(
    texts: Sequence[str], unit: Unit, min_frequency: int = 0, specials: Sequence[str] = (), *, lowercase: bool
) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase()] * lowercase + [normalizers.NFC()])
    by_unit = {"words": pre_tokenizers.Whitespace(), "characters": pre_tokenizers.Split(Regex("."), "isolated")}
    tokenizer.pre_tokenizer = by_unit[unit]
    # By default the trainer would keep only the 30,000 most frequent words.
    trainer = trainers.WordLevelTrainer(
        vocab_size=2**31 - 1, min_frequency=min_frequency, show_progress=False, special_tokens=list(specials)
    )
    tokenizer.train_from_iterator(texts, trainer, length=len(texts))
    return tokenizer


def _words(tokenizer: Tokenizer) -> tuple[str, ...]:
    numbers = tokenizer.get_vocab()
    return tuple(sorted(numbers, key=lambda word: numbers[word]))


def _offsets(lengths: NDArray[np.int64]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
