"""`attnsweep prepare-corpus --unit`: prepares one column of text for the workload `gpt`. Axis: N row."""

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.tools.prepare_corpus.output import check_out, rows_table, sha256_of, write
from attnsweep.orchestrator.tools.prepare_corpus.raw_text import RawRows, read_rows
from attnsweep.orchestrator.tools.prepare_corpus.rows import (
    Reasons,
    mark_duplicates,
    read_texts,
    refuse_none,
    shares,
    unknown_share,
)
from attnsweep.orchestrator.tools.prepare_corpus.vocabulary import Sentences, Unit, learn_vocabulary, split
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.gpt.text import PART_NAMES, SPECIALS, TEXT_FILE, UNK, Text, make_text

_REASONS = ("not_utf8", "not_text", "empty", "too_long", "duplicate")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextSettings:
    """The settings for preparing a text: the kind of token, which rows are kept, and which are held out.

    Attributes:
        unit: Whether a token is a word or a character.
        min_frequency: Tokens rarer than this in the training part become unknown.
        longest: The most tokens of a row that is kept; `None` for no limit.
        held_out: The share of the rows held out.
        lowercase: Whether text is lowercased.
        seed: The seed of the choice of held-out rows.

    Raises:
        UserError: If a value is out of its range.
    """

    unit: Unit
    min_frequency: int = 2
    longest: int | None = None
    held_out: float = 0.1
    lowercase: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise UserError(
                "--held-out",
                given=self.held_out,
                expected="a share between 0 and 1",
                fix="write for example --held-out 0.1",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedText:
    """A prepared text that was written to a file, with its origin and report.

    Attributes:
        out: The file.
        text: The content of the file.
        facts: The text's origin, the settings, and how many rows were used, as `--json` prints them.
    """

    out: Path
    text: Text
    facts: dict[str, Any]

    @property
    def next_command(self) -> str:
        """The command to try next: a sweep that trains on the text."""
        settings = {"task": "text", "corpus": str(self.out), "n_tokens": 32, "optimizer": "adam", "learning_rate": 0.01}
        settings |= {"n_steps": 500, "probe_every": 50}
        options = " ".join(f"--set {shlex.quote(f'{name}={value}')}" for name, value in settings.items())
        return f"attnsweep run gpt_stages {options} --trials 4 --replicates 4"

    def to_json(self) -> str:
        """Returns the report as one line of JSON, for scripts."""
        content = {"corpus": str(self.out), "digest": self.text.digest, **self.facts, "next": self.next_command}
        return json.dumps(content, allow_nan=False)

    def print(self, console: Console) -> None:
        """Prints the report and the next command."""
        grid = rows_table(self.facts["rows"], self.facts["dropped"], self.facts["kept"])
        grid.add_row("vocabulary", f"{len(self.text.words):,}")
        for part in PART_NAMES:
            name = part.replace("_", " ")
            grid.add_row(f"tokens, {name}", f"{self.facts['tokens'][part]:,}")
            grid.add_row(f"unknown tokens, {name}", f"{self.facts['unknown_share'][part]:.1%}")
        console.print(grid)
        console.print(f"corpus   {self.out} (digest {self.text.digest})", soft_wrap=True, markup=False)
        console.print(f"next     {self.next_command}", soft_wrap=True, markup=False)


def prepare_text(file: Path, out: Path, column: str | None, settings: TextSettings) -> PreparedText:
    """Prepares one column of a file, or a plain text: numbers the tokens and writes them to `out`.

    Args:
        file, column: As in `read_rows`.
        out: The file to write.
        settings: The settings of the preparation.

    Raises:
        UserError: If the file cannot be used, or the text cannot be written. Nothing has been written then.
    """
    check_out(out, TEXT_FILE)
    raw = read_rows(file, column)
    rows, is_held_out, dropped = _usable(raw, settings)
    words = learn_vocabulary(
        rows.texts.filter(pa.array(~is_held_out)).to_pylist(),
        settings.unit,
        min_frequency=settings.min_frequency,
        lowercase=settings.lowercase,
        specials=SPECIALS,
    )
    numbered = rows.sentences.renumber(words, UNK)
    text = make_text(words, numbered.numbers, is_held_out)
    parts = dict(zip(PART_NAMES, (numbered.filter(~is_held_out), numbered.filter(is_held_out)), strict=True))
    facts = {
        "origin": {"file": file.name, "sha256": sha256_of(file), "column": raw.name},
        "settings": asdict(settings),
        "rows": len(is_held_out) + sum(dropped.values()),
        "kept": len(is_held_out),
        "dropped": dropped,
        "words": len(words),
        "tokens": {"train": len(text.train), "held_out": len(text.held_out)},
        "unknown_share": {name: unknown_share(part, UNK) for name, part in parts.items()},
    }
    part = is_held_out.astype(np.int64)
    write(TEXT_FILE.table([numbered.numbers], part, text.words, text.digest, {"facts": facts}), out)
    return PreparedText(out=out, text=text, facts=facts)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rows:
    """The rows of a file that are kept, as texts and as tokens.

    Attributes:
        texts: The rows as texts, (N,).
        sentences: The same rows as tokens.
    """

    texts: pa.LargeStringArray
    sentences: Sentences


def _usable(raw: RawRows, settings: TextSettings) -> tuple[_Rows, NDArray[np.bool_], dict[str, int]]:
    """Selects the rows that can be used. Returns them, a mask (N,) of those to hold out, and the number of dropped
    rows by reason."""
    reasons = Reasons(len(raw.texts))
    (texts,) = read_texts([raw.texts], reasons)
    sentences = split(texts.to_pylist(), settings.unit, lowercase=settings.lowercase)
    reasons.mark("empty", sentences.lengths == 0)
    if settings.longest is not None:
        reasons.mark("too_long", sentences.lengths > settings.longest)
    mark_duplicates([sentences], reasons)
    dropped = {"wrong_number_of_fields": raw.n_wrong_fields, **{reason: reasons.count(reason) for reason in _REASONS}}
    kept = reasons.kept
    refuse_none(dropped, kept, "rows of text", "see --column and --longest")
    rows = _Rows(texts=texts.filter(pa.array(kept)), sentences=sentences.filter(kept))
    is_held_out = shares(rows.sentences, settings.seed) < settings.held_out
    if is_held_out.all() or not is_held_out.any():
        raise UserError(
            "--held-out",
            given=settings.held_out,
            expected=f"a share that leaves some of the {len(is_held_out)} rows in each part",
            fix="choose another share or --seed, or give more rows",
        )
    return rows, is_held_out, dropped
