"""Makes a corpus of pairs, or a text: reads, chooses rows, learns vocabularies, writes. Axis: N row."""

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attnsweep.orchestrator.storage.output_file import check_output, writing_file
from attnsweep.orchestrator.tools.prepare_corpus.reading import read_pairs, read_rows
from attnsweep.orchestrator.tools.prepare_corpus.rows import (
    PreparationSettings,
    Prepared,
    in_words,
    shares,
    usable_rows,
)
from attnsweep.orchestrator.tools.prepare_corpus.vocabulary import Sentences, learn_vocabulary
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.gpt import text as gpt
from attnsweep.workloads.prepared_files import Format
from attnsweep.workloads.translation import corpus as translation

_TRY_TEXT = "--set n_tokens=32 --set optimizer=adam --set learning_rate=0.01 --set n_steps=500 --set probe_every=50"


def prepare_pairs(
    file: Path, out: Path, source: str | None, target: str | None, settings: PreparationSettings
) -> Prepared:
    """Arguments as for `read_pairs`."""
    _check_out(out, translation.CORPUS_FILE)
    columns = read_pairs(file, source, target)
    usable = usable_rows(columns, settings)
    share_N = shares(usable.sentences[0], settings.seed)
    parts = [translation.TEST, translation.VALID]
    part_N = np.select([share_N < settings.held_out / 2, share_N < settings.held_out], parts, translation.TRAIN)
    n_pairs = _counted(part_N, translation.PART_NAMES, settings)
    sides = [
        _with_vocabulary(texts[part_N == translation.TRAIN], sentences, settings, translation.SPECIALS, translation.UNK)
        for texts, sentences in zip(usable.texts, usable.sentences, strict=True)
    ]
    of_source, of_target = (translation.make_side(side.words, side.numbers) for side in sides)
    corpus = translation.make_corpus(of_source, of_target, part_N)

    def by_side(numbers: Sequence[float]) -> dict[str, float]:
        return dict(zip(("source", "target"), numbers, strict=True))

    facts = {
        "origin": {**_origin(file), **dict(zip(("source", "target"), columns.names, strict=True))},
        "settings": {name: value for name, value in asdict(settings).items() if name != "unit"},
        **usable.counts(),
        "pairs": n_pairs,
        "words": by_side([len(side.words) for side in sides]),
        "unknown_share": {
            name: by_side([side.filter(part_N == number).share_of(translation.UNK) for side in sides])
            for number, name in enumerate(translation.PART_NAMES)
        },
    }
    words = {"source": corpus.source.words, "target": corpus.target.words}
    numbers = [side.numbers for side in sides]
    _write(translation.CORPUS_FILE.table(numbers, part_N, words, corpus.digest, {"facts": facts}), out)
    command = f"attnsweep run head_roles --set {shlex.quote(f'corpus={out}')}"
    return Prepared(out=out, digest=corpus.digest, facts=facts, next_command=command)


def prepare_text(file: Path, out: Path, column: str | None, settings: PreparationSettings) -> Prepared:
    """Arguments as for `read_rows`."""
    _check_out(out, gpt.TEXT_FILE)
    columns = read_rows(file, column)
    usable = usable_rows(columns, settings)
    (texts,), (sentences,) = usable.texts, usable.sentences
    is_held_out_N = shares(sentences, settings.seed) < settings.held_out
    part_N = is_held_out_N.astype(np.int64)
    _counted(part_N, gpt.PART_NAMES, settings)
    numbered = _with_vocabulary(texts[~is_held_out_N], sentences, settings, gpt.SPECIALS, gpt.UNK)
    text = gpt.make_text(numbered.words, numbered.numbers, is_held_out_N)
    facts = {
        "origin": {**_origin(file), "column": columns.names[0]},
        "settings": asdict(settings),
        **usable.counts(),
        "words": len(numbered.words),
        "tokens": {"train": len(text.train), "held_out": len(text.held_out)},
        "unknown_share": {
            name: numbered.filter(part_N == number).share_of(gpt.UNK) for number, name in enumerate(gpt.PART_NAMES)
        },
    }
    _write(gpt.TEXT_FILE.table([numbered.numbers], part_N, text.words, text.digest, {"facts": facts}), out)
    corpus = shlex.quote(f"corpus={out}")
    command = f"attnsweep run gpt_stages --set task=text --set {corpus} {_TRY_TEXT} --trials 4 --replicates 4"
    return Prepared(out=out, digest=text.digest, facts=facts, next_command=command)


def _counted(part_N: NDArray[np.int64], names: Sequence[str], settings: PreparationSettings) -> dict[str, int]:
    n_rows = {name: int((part_N == number).sum()) for number, name in enumerate(names)}
    if not all(n_rows.values()):
        expected, fix = f"a share with which each part gets rows, not {in_words(n_rows)}", "give another, or more rows"
        raise UserError("--held-out", given=settings.held_out, expected=expected, fix=fix)
    return n_rows


def _with_vocabulary(
    texts: NDArray[np.object_],
    sentences: Sentences,
    settings: PreparationSettings,
    specials: Sequence[str],
    unknown: int,
) -> Sentences:
    """`sentences` in the vocabulary of `texts`, those of the training part."""
    words = learn_vocabulary(
        texts.tolist(),
        settings.unit,
        min_frequency=settings.min_frequency,
        lowercase=settings.lowercase,
        specials=specials,
    )
    if len(words) == len(specials):
        expected, fix = "a frequency that at least one word reaches", "lower it, or give more text"
        raise UserError("--min-frequency", given=settings.min_frequency, expected=expected, fix=fix)
    return sentences.renumber(words, unknown)


def _check_out(out: Path, kind: Format[Any]) -> None:
    """Refuses what cannot be written, and a file of another kind. Writes nothing."""
    check_output(out)
    if out.exists() and not kind.is_at(out):
        expected = f"the path of a new file, or of a {kind.noun} that may be overwritten"
        raise UserError("--out", given=str(out), expected=expected, fix="choose another path")


def _origin(file: Path) -> dict[str, str]:
    with file.open("rb") as stream:
        return {"file": file.name, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}


def _write(table: pa.Table, out: Path) -> None:
    with writing_file(out) as path:
        pq.write_table(table, path, compression="zstd")
