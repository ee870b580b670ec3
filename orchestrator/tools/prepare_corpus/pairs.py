"""`attnsweep prepare-corpus`: turns pairs of sentences into a corpus for the workload `translation`.

Axis: N sentence pair.
"""

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich import box
from rich.markup import escape
from rich.table import Table

from attnsweep.orchestrator.tools.prepare_corpus.raw_text import read_pairs
from attnsweep.orchestrator.tools.prepare_corpus.rows import (
    PreparationSettings,
    Prepared,
    check_out,
    in_words,
    rows_table,
    sha256_of,
    shares,
    usable_rows,
    write,
)
from attnsweep.orchestrator.tools.prepare_corpus.vocabulary import Sentences, learn_vocabulary
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.translation.corpus import (
    CORPUS_FILE,
    PART_NAMES,
    SPECIALS,
    TEST,
    TRAIN,
    UNK,
    VALID,
    make_corpus,
    make_side,
)


def prepare_pairs(
    file: Path, out: Path, source: str | None, target: str | None, settings: PreparationSettings
) -> Prepared:
    """Prepares a corpus of sentence pairs; `file`, `source` and `target` are as in `read_pairs`.

    Raises:
        UserError: If the file cannot be used, or the corpus cannot be written. Nothing has been written then.
    """
    check_out(out, CORPUS_FILE)
    raw = read_pairs(file, source, target)
    fix = "see --source, --target and --longest"
    usable = usable_rows(raw, settings, empty="empty_side", expected="pairs of sentences", fix=fix)
    part_N, n_pairs = _parts(usable.sentences[0], settings)
    sides = [
        _with_vocabulary(name, texts, sentences, part_N == TRAIN, settings)
        for name, texts, sentences in zip(raw.names, usable.texts, usable.sentences, strict=True)
    ]
    made_source, made_target = (make_side(side.words, side.numbers) for side in sides)
    corpus = make_corpus(made_source, made_target, part_N)
    origin = dict(zip(("file", "sha256", "source", "target"), (file.name, sha256_of(file), *raw.names), strict=True))
    settings_of_pairs = {name: value for name, value in asdict(settings).items() if name != "unit"}
    report = usable.counts() | {
        "pairs": n_pairs,
        "words": _by_side([len(side.words) for side in sides]),
        "unknown_share": {
            name: _by_side([side.filter(part_N == number).share_of(UNK) for side in sides])
            for number, name in enumerate(PART_NAMES)
        },
        "mean_length": _by_side([float(side.lengths.mean()) for side in sides]),
    }
    words = {"source": corpus.source.words, "target": corpus.target.words}
    further = {"origin": origin, "settings": settings_of_pairs, "report": report}
    grid = rows_table(usable)
    for part, count in n_pairs.items():
        grid.add_row(f"  {part}", f"{count:,}")
    write(CORPUS_FILE.table([side.numbers for side in sides], part_N, words, corpus.digest, further), out)
    return Prepared(
        out=out,
        digest=corpus.digest,
        facts={"origin": origin, "settings": settings_of_pairs, **report},
        tables=(grid, _sides_table(report, raw.names)),
        next_command=f"attnsweep run head_roles --set corpus={shlex.quote(str(out))}",
    )


def _parts(source: Sentences, settings: PreparationSettings) -> tuple[NDArray[np.int64], dict[str, int]]:
    share_N = shares(source, settings.seed)
    part_N = np.select([share_N < settings.held_out / 2, share_N < settings.held_out], [TEST, VALID], TRAIN)
    n_pairs = {name: int((part_N == number).sum()) for number, name in enumerate(PART_NAMES)}
    if not all(n_pairs.values()):
        expected = f"a share with which training, validation and test each get sentence pairs, not {in_words(n_pairs)}"
        fix = "choose another share or --seed, or give more sentences"
        raise UserError("--held-out", given=settings.held_out, expected=expected, fix=fix)
    return part_N, n_pairs


def _with_vocabulary(
    name: str,
    texts: pa.LargeStringArray,
    sentences: Sentences,
    is_trained_N: NDArray[np.bool_],
    settings: PreparationSettings,
) -> Sentences:
    words = learn_vocabulary(
        texts.filter(pa.array(is_trained_N)).to_pylist(),
        "words",
        min_frequency=settings.min_frequency,
        lowercase=settings.lowercase,
        specials=SPECIALS,
    )
    if len(words) == len(SPECIALS):
        expected = f"a frequency that at least one word of {name} reaches"
        fix = "lower the frequency, or give more sentences"
        raise UserError("--min-frequency", given=settings.min_frequency, expected=expected, fix=fix)
    return sentences.renumber(words, UNK)


def _by_side(numbers: list[Any]) -> dict[str, Any]:
    return dict(zip(("source", "target"), numbers, strict=True))


def _sides_table(report: Mapping[str, Any], names: tuple[str, ...]) -> Table:
    grid = Table(box=box.SIMPLE_HEAD)
    grid.add_column("")
    for name in names:
        grid.add_column(escape(name), justify="right")
    grid.add_row("vocabulary", *(f"{count:,}" for count in report["words"].values()))
    grid.add_row("mean length, words", *(f"{length:.1f}" for length in report["mean_length"].values()))
    for part, share in report["unknown_share"].items():
        grid.add_row(f"unknown words, {part}", *(f"{value:.1%}" for value in share.values()))
    return grid
