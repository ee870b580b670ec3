"""Ledgers with made-up heads, for tests of their readers."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from attnsweep.orchestrator.ledger.schema import heads_schema
from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Sweep
from tests.orchestrator.small_sweep import SCHEMAS, STEPS, TRAININGS, Rows

ROLE_SCORES = ("positional_share", "syntactic_gain", "rare_token")
WORDS = {"p": "positional", "s": "syntactic", "r": "rare_token", ".": "none"}

Timelines = Mapping[tuple[int, int], Sequence[str]]
"""By layer and head a letter or role for each probe: `..pp` is positional from the third on."""


def head_rows(training: Mapping[str, Any], timelines: Timelines, steps: Sequence[int] = STEPS) -> Rows:
    """The heads of one training, which has as many probes as its timelines have letters."""
    key = {name: training[name] for name in ("training_id", "trial", "replicate")}
    return [
        key | {"step": step, "layer": layer, "head": head, "role": WORDS.get(letter, letter)}
        for (layer, head), letters in timelines.items()
        for step, letter in zip(steps, letters, strict=False)
    ]


def sweep_with_heads(
    path: Path,
    spec: Sweep,
    trainings: Iterable[Rows],
    heads: Rows,
    score_names: Sequence[str] = ROLE_SCORES,
    measured: Sequence[str] = ROLE_SCORES,
) -> SweepDirectory:
    """A sweep on disk; of the scores, those `measured` are 0.5 and the others null."""
    directory = SweepDirectory.create(path, spec, {})
    schema = heads_schema(score_names)
    rows = [row for trial in trainings for row in trial]
    scored = [{f"score_{name}": 0.5 if name in measured else None for name in score_names} | row for row in heads]
    with LedgerWriter(directory.place, SCHEMAS | {"heads": schema}, spec.sha256()) as writer:
        writer.commit(
            "p",
            pa.Table.from_pylist([{name: row.get(name) for name in TRAININGS.names} for row in rows], TRAININGS),
            pa.Table.from_pylist([], SCHEMAS["curves"]),
            pa.Table.from_pylist(scored, schema),
        )
    return directory
