"""`attnsweep prepare-corpus --unit`: prepares one column of text, or a plain text, for the workload `gpt`."""

import shlex
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa

from attnsweep.orchestrator.tools.prepare_corpus.raw_text import read_rows
from attnsweep.orchestrator.tools.prepare_corpus.rows import (
    PreparationSettings,
    Prepared,
    check_out,
    rows_table,
    sha256_of,
    shares,
    usable_rows,
    write,
)
from attnsweep.orchestrator.tools.prepare_corpus.vocabulary import learn_vocabulary
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.gpt.text import PART_NAMES, SPECIALS, TEXT_FILE, UNK, make_text


def prepare_text(file: Path, out: Path, column: str | None, settings: PreparationSettings) -> Prepared:
    """Splits one column, or a plain text, into numbered tokens.

    Raises:
        UserError: If the file cannot be used, or the text cannot be written. Nothing has been written then.
    """
    check_out(out, TEXT_FILE)
    raw = read_rows(file, column)
    usable = usable_rows(raw, settings, empty="empty", expected="rows of text", fix="see --column and --longest")
    (texts,), (sentences,) = usable.texts, usable.sentences
    is_held_out_N = shares(sentences, settings.seed) < settings.held_out
    if is_held_out_N.all() or not is_held_out_N.any():
        expected = f"a share that holds some of the {len(is_held_out_N)} rows out, and leaves some for training"
        fix = "choose another share or --seed, or give more rows"
        raise UserError("--held-out", given=settings.held_out, expected=expected, fix=fix)
    words = learn_vocabulary(
        texts.filter(pa.array(~is_held_out_N)).to_pylist(),
        settings.unit,
        min_frequency=settings.min_frequency,
        lowercase=settings.lowercase,
        specials=SPECIALS,
    )
    numbered = sentences.renumber(words, UNK)
    text = make_text(words, numbered.numbers, is_held_out_N)
    masks = dict(zip(PART_NAMES, (~is_held_out_N, is_held_out_N), strict=True))
    facts = {
        "origin": {"file": file.name, "sha256": sha256_of(file), "column": raw.names[0]},
        "settings": asdict(settings),
        **usable.counts(),
        "words": len(words),
        "tokens": {"train": len(text.train), "held_out": len(text.held_out)},
        "unknown_share": {part: numbered.filter(mask_N).share_of(UNK) for part, mask_N in masks.items()},
    }
    grid = rows_table(usable)
    grid.add_row("vocabulary", f"{len(words):,}")
    for part in PART_NAMES:
        name = part.replace("_", " ")
        grid.add_row(f"tokens, {name}", f"{facts['tokens'][part]:,}")
        grid.add_row(f"unknown tokens, {name}", f"{facts['unknown_share'][part]:.1%}")
    write(
        TEXT_FILE.table([numbered.numbers], is_held_out_N.astype(np.int64), text.words, text.digest, {"facts": facts}),
        out,
    )
    return Prepared(out=out, digest=text.digest, facts=facts, tables=(grid,), next_command=_next_command(out))


def _next_command(out: Path) -> str:
    values = {"task": "text", "corpus": str(out), "n_tokens": 32, "optimizer": "adam", "learning_rate": 0.01}
    values |= {"n_steps": 500, "probe_every": 50}
    options = " ".join(f"--set {shlex.quote(f'{name}={value}')}" for name, value in values.items())
    return f"attnsweep run gpt_stages {options} --trials 4 --replicates 4"
