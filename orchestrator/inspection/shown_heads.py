"""The attention maps that a sweep's report shows, of some of its trainings."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import pyarrow.compute as pc

from attnsweep.orchestrator.inspection.head import Head
from attnsweep.orchestrator.inspection.heads import Heads, joined, looked_at
from attnsweep.orchestrator.inspection.kept_weights import by_shape, ends_of
from attnsweep.orchestrator.inspection.recorded import has_end, recorded_rows
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.report.retrained import ShownLayer, TrainingMaps
from attnsweep.orchestrator.report.sweep_report import SweepReport
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.workloads.errors import UserError

_MOST_CELLS = 1_000_000
"""The largest number of cells of all maps together: each cell takes 1.33 bytes of the page."""


def maps_of(report: SweepReport, most: int) -> list[TrainingMaps]:
    """Returns the attention maps of at most `most` trainings for the report, with as many different outcomes as
    possible.

    Trainings whose weights were not kept are repeated, those with equal static parameters together. Trainings with
    which the maps would have more than 1,000,000 cells are left out.

    Raises:
        UserError: If the sweep's heads are not scored, its code is not trusted, or its code fails.
    """
    if report.explorer is None or not report.explorer.has_heads:
        raise UserError(
            "--heads",
            given=report.place,
            expected="a sweep that varies at least one parameter and whose workload scores attention heads",
            fix="leave out --heads",
        )
    chosen = _chosen(report, most)
    by_name = {heads.name: heads for heads in _heads(report, [row["training_id"] for row in chosen])}
    shown: list[TrainingMaps] = []
    n_cells = 0
    for row in chosen:
        maps = _shown(by_name[f"{row['trial']}/{row['replicate']}"])
        n_cells += sum(layer.n_cells for layer in maps.layers)
        if n_cells > _MOST_CELLS:
            break
        shown.append(maps)
    return shown


def _chosen(report: SweepReport, most: int) -> Sequence[Mapping[str, Any]]:
    assert report.explorer is not None
    with_heads = {(sample.trial, sample.replicate) for sample in report.explorer.samples if sample.roles}
    trials = sorted({trial for trial, _ in with_heads})
    rows = Ledger(report.directory.place).trainings(filter=pc.field("trial").isin(trials)).to_pylist()
    candidates = [row for row in rows if (row["trial"], row["replicate"]) in with_heads and has_end(row)]
    candidates.sort(key=lambda row: (row["trial"], row["replicate"]))
    turns: dict[str, Iterator[int]] = {}
    turn = {row["training_id"]: next(turns.setdefault(row["outcome"], count())) for row in candidates}
    return sorted(candidates, key=lambda row: turn[row["training_id"]])[:most]


def _heads(report: SweepReport, training_ids: Sequence[str]) -> Iterator[Heads]:
    workload = load_workload_of(report.directory)
    recorded = recorded_rows(Ledger(report.directory.place), training_ids)
    scored = [] if recorded.heads is None else recorded.heads.to_pylist()
    for group in by_shape(report.directory, recorded.trainings):
        ends = ends_of(report.directory, [row["training_id"] for row, _ in group])
        for (row, training), end in zip(group, ends, strict=True):
            maps = looked_at(workload, training, end.state)
            own_scores = [head for head in scored if head["training_id"] == row["training_id"]]
            yield joined(workload, row, maps, own_scores, end.difference)


def _shown(heads: Heads) -> TrainingMaps:
    layers = (
        ShownLayer(
            title=heads.layer_title(layer.number),
            queries=layer.queries,
            keys=layer.keys,
            heads={_title(head): head.weights_QK.numpy() for head in heads.of_layer(layer)},
        )
        for layer in heads.maps.layers
    )
    sentence = f"Sentence {heads.maps.number} of {heads.maps.n_sentences}: {heads.maps.text}"
    text = f"{sentence} ({heads.note})" if heads.note else sentence
    return TrainingMaps(name=heads.name, text=text, layers=tuple(layers))


def _title(head: Head) -> str:
    near = "" if head.structure is None or head.structure.family == "none" else f", {head.structure.label}"
    return f"{head.head}: {(head.role or 'not scored').replace('_', ' ')}{near}"
