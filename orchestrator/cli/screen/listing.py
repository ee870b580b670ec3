"""Prints `attnsweep list`: all sweeps below folders, or below prefixes of an object store, the newest first."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import typer
from rich.filesize import decimal
from rich.table import Column, Table

from attnsweep.orchestrator.analysis.rates.by_parameter import SOLVED, STUCK, rate_of
from attnsweep.orchestrator.analysis.rates.intervals import NOTHING, share_label
from attnsweep.orchestrator.analysis.tables import to_json
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.copies import name_of
from attnsweep.orchestrator.storage.errors import in_words
from attnsweep.orchestrator.storage.files import parquet_names
from attnsweep.orchestrator.storage.place_names import PlaceName, as_argument
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory, sweeps_below
from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.workloads.errors import UserError

_MAX_WIDTH = 10_000


def print_list(places: Sequence[PlaceName], *, as_json: bool) -> None:
    below, stderr = ", ".join(map(str, places)), PlainConsole(stderr=True, soft_wrap=True)
    with stderr.status(f"looking for sweeps below {below}; Ctrl-C stops it"):
        found = [_listed(*each) for place in places for each in sweeps_below(place)]
    rows = sorted(found, key=lambda row: (row["created_at"], row["place"]), reverse=True)
    if as_json:
        typer.echo(to_json(rows))
        return
    names = ("sweep", "state", "trainings", "stuck rate", "solved rate", "size", "tags, note")
    table = Table(*(Column(name, overflow="fold") for name in names), box=None, header_style="bold")
    for row in rows:
        words = [*(f"{name}={value}" for name, value in row["tags"].items()), *filter(None, [row["note"]])]
        rates_of = (share_label(row["stuck"]), share_label(row["solved"]))
        count, size = f"{row['n_trainings']:,}", decimal(row["n_bytes"])
        table.add_row(as_argument(row["place"]), row["state"], count, *rates_of, size, "; ".join(words))
    console = PlainConsole()
    # Wider than the terminal if need be: a path that is split over several lines cannot be copied.
    width = max(console.width, console.measure(table, options=console.options.update_width(_MAX_WIDTH)).maximum)
    PlainConsole(width=width).print(table if rows else "no sweep there")


def _listed(place: Path, n_bytes: int) -> dict[str, Any]:
    """A row of `--json`; its `state` also tells why a sweep cannot be read."""
    row: dict[str, Any] = {"place": name_of(place), "state": "", "n_trainings": 0, "n_bytes": n_bytes}
    row |= {"created_at": "", "stuck": NOTHING, "solved": NOTHING, "note": "", "tags": {}}
    try:
        directory = SweepDirectory.open(place)
        is_running = directory.progress.is_running(datetime.now(UTC))
        state = "finished" if directory.finished else "running" if is_running else "not finished"
        created = str(directory.provenance.get("created_at", ""))
        row |= {"state": state, "created_at": created, "note": directory.note, "tags": dict(directory.tags)}
        if parquet_names(place / "trainings"):
            row |= Ledger(place).ask(partial(_counted, directory=directory), ["trainings"])
    except UserError as error:
        row["state"] = f"damaged: {error.given}"
    except OSError as error:
        row["state"] = f"cannot be read: {in_words(error)}"
    return row


def _counted(connection: duckdb.DuckDBPyConnection, directory: SweepDirectory) -> dict[str, Any]:
    ((n_trainings,),) = connection.sql("select count(*) from trainings").fetchall()
    stuck, solved = (rate_of(connection, ending, directory.spec) for ending in (STUCK, SOLVED))
    return {"n_trainings": n_trainings, "stuck": stuck, "solved": solved}
