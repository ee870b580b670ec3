"""Runs the sweep of a reproduction, and compares it with the publication by the queries of the catalog."""

import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.session import resume_sweep, run_sweep
from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.reproduction.catalog import Reproduction
from attnsweep.reproduction.comparison import ComparedValue, Comparison, TextTable, save_figure, value_row
from attnsweep.reproduction.figures import Curve, HeatMap, Panel, draw_curves, draw_heat_maps
from attnsweep.reproduction.rows import ESTIMATORS, estimate_row
from attnsweep.search_spaces import Categorical, Sweep
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.errors import UserError

Declared: TypeAlias = Mapping[str, Any]
Records: TypeAlias = Sequence[dict[str, Any]]


def reproduce(reproduction: Reproduction, directory: Path, console: Console) -> Comparison:
    """Runs the sweep, or goes on with it, and compares it."""
    return compared(reproduction, swept(reproduction, directory, console), directory)


def swept(reproduction: Reproduction, directory: Path, console: Console) -> SweepDirectory:
    """The finished sweep: run, or resumed if its directory exists, which may hold it with another seed."""
    spec = spec_of(reproduction)
    path = directory / spec.name
    if (path / SWEEP_FILE).exists():
        stored = SweepDirectory.open(path)
        if stored.spec.but(seed=spec.seed) != spec:
            expected = f"a new directory, or one with the sweep {spec.name} of this version of attnsweep, with any seed"
            raise UserError("--dir", given=str(path), expected=expected, fix="choose another --dir")
        if stored.finished:
            return stored
        summary = resume_sweep(path, Resources(engine=reproduction.engine, mlflow=False), console)
    else:
        summary = run_sweep(spec, path, Resources(engine=reproduction.engine, mlflow=False), console)
    summary.print(console)
    if not summary.finished:
        raise KeyboardInterrupt
    return summary.directory


def spec_of(reproduction: Reproduction) -> Sweep:
    """A list in the `space` of the full size is a choice."""
    if not reproduction.is_full:
        return load_sweep(reproduction.sweep)
    full = reproduction.full
    spec = load_sweep(full.get("sweep", reproduction.sweep))
    if "space" not in full:
        return spec
    sizes = {
        name: Categorical(tuple(value)) if isinstance(value, list) else value for name, value in full["space"].items()
    }
    budget = {name: full[name] for name in ("trials", "replicates") if name in full}
    return spec.but(name=f"{spec.name}_full", space={**spec.space, **sizes}, **budget)


def compared(reproduction: Reproduction, sweep: SweepDirectory, directory: Path) -> Comparison:
    if reproduction.function:
        comparison: Comparison = pkgutil.resolve_name(reproduction.function)(sweep, directory)
        return comparison
    with Ledger(sweep.place).connect() as connection:
        if reproduction.views:
            connection.execute(reproduction.views)
        return Comparison(
            title=f"{reproduction.name}: {reproduction.title}",
            source=reproduction.source,
            rows=[row for declared in reproduction.rows for row in _rows(connection, sweep, declared)],
            tables=[_table(connection, declared) for declared in reproduction.tables],
            figures=[
                path
                for declared in reproduction.figures
                for path in save_figure(_figure(connection, sweep, declared), directory, declared["name"])
            ],
            notes=reproduction.notes,
        )


def _records(connection: duckdb.DuckDBPyConnection, declared: Declared) -> Records:
    records: Records = connection.sql(declared["sql"]).to_arrow_table().to_pylist()
    return records


def _rows(connection: duckdb.DuckDBPyConnection, sweep: SweepDirectory, declared: Declared) -> Iterator[ComparedValue]:
    if "event" in declared:
        yield from _half_reached(sweep, declared)
        return
    for found in _records(connection, declared):
        record = {**declared, **found}
        name, published = record["name"].format(**record), record.get("published")
        record["published"] = published.format(**record) if isinstance(published, str) else published
        if "value" in record:
            yield value_row(name, record["value"], record["published"], agrees=record.get("agrees"))
        else:
            yield estimate_row(name, record["estimator"], record)


def _half_reached(sweep: SweepDirectory, declared: Declared) -> Iterator[ComparedValue]:
    """The step by which half of the trainings had an event, which others may never have."""
    by, event, after = declared["by"], declared["event"], declared.get("after")
    for found in SweepData.open(sweep.place).event(event, by=by, after=after).to_pylist():
        name = f"{by} {found[by]}: half have {event}" + (f", steps after {after}" if after else ", step")
        ours = "not reached" if found["half_step"] is None else found["half_step"]
        yield ComparedValue(name=name, published=None, ours=ours, low=found["low"], high=found["high"])


def _table(connection: duckdb.DuckDBPyConnection, declared: Declared) -> TextTable:
    table = connection.sql(declared["sql"]).to_arrow_table()
    return declared["title"], [table.column_names, *([str(cell) for cell in row.values()] for row in table.to_pylist())]


def _figure(connection: duckdb.DuckDBPyConnection, sweep: SweepDirectory, declared: Declared) -> Figure:
    if "function" in declared:
        figure: Figure = pkgutil.resolve_name(declared["function"])(sweep)
        return figure
    records = _records(connection, declared)
    axes = declared.get("axes", {})
    return _maps(records, axes) if "value" in records[0] else _curves(records, declared["estimator"], axes)


def _curves(records: Records, estimator: str, axes: Declared) -> Figure:
    """Columns: `line` and `panel` say where, `label` is the curve; `x`, and `sample` of the estimator."""
    rows: dict[str, dict[str, dict[str, list[dict[str, Any]]]]] = {}
    for record in records:
        panels = rows.setdefault(record.get("line", ""), {})
        panels.setdefault(record.get("panel", ""), {}).setdefault(record["label"], []).append(record)
    return draw_curves(
        [
            [
                Panel(
                    curves=[_curve(label, points, estimator) for label, points in curves.items()],
                    axes={"title": panel, "ylabel": line, **axes},
                )
                for panel, curves in panels.items()
            ]
            for line, panels in rows.items()
        ]
    )


def _curve(label: str, points: Records, estimator: str) -> Curve:
    estimates = np.array([ESTIMATORS[estimator](point) for point in points])
    return Curve(label, [point["x"] for point in points], *np.where(np.isfinite(estimates), estimates, np.nan).T)


def _maps(records: Records, axes: Declared) -> Figure:
    """Columns: `panel`, `y`, `x` and `value`, one for each cell."""
    xs, ys = (sorted({record[name] for record in records}) for name in ("x", "y"))
    ticks = {
        **{"xticks": range(len(xs)), "xticklabels": xs, "yticks": range(len(ys)), "yticklabels": ys},
        **axes,
    }
    maps: dict[str, np.ndarray] = {}
    for record in records:
        values = maps.setdefault(record["panel"], np.zeros((len(ys), len(xs))))
        values[ys.index(record["y"]), xs.index(record["x"])] = record["value"]
    return draw_heat_maps([[HeatMap(values=values, axes={"title": panel, **ticks}) for panel, values in maps.items()]])
