"""Prints `attnsweep list`: all sweeps below folders, or below prefixes of an object store, the newest first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

import duckdb
import typer
from rich.filesize import decimal
from rich.table import Column, Table

from attnsweep.orchestrator.analysis.rates.by_parameter import solved_rate, stuck_rate
from attnsweep.orchestrator.analysis.rates.intervals import NOTHING, Rate, share_label
from attnsweep.orchestrator.analysis.tables import to_json
from attnsweep.orchestrator.cli.answers import say_passed_over
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.place_names import PlaceName, as_argument, place_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory, sweeps_below
from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.workloads.errors import UserError

_WIDEST = 10_000


@dataclass(frozen=True)
class Listed:
    """What is printed of one sweep.

    Attributes:
        state: `finished`, `running`, `not finished`, or why the sweep cannot be read.
        created_at: In ISO format; empty if that is not recorded.
    """

    place: str
    state: str
    n_trainings: int
    stuck: Rate
    solved: Rate
    n_bytes: int
    created_at: str
    note: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


def print_list(places: Sequence[PlaceName], *, as_json: bool) -> None:
    """Raises UserError if a place does not exist."""
    below, stderr = ", ".join(map(str, places)), PlainConsole(stderr=True, soft_wrap=True)
    passed_over: list[OSError] = []
    with stderr.status(f"looking for sweeps below {below}; Ctrl-C stops it"):
        rows = sorted(
            (_listed(*found) for place in places for found in sweeps_below(place_of(place), passed_over.append)),
            key=lambda row: (row.created_at, row.place),
            reverse=True,
        )
    say_passed_over(passed_over)
    if as_json:
        typer.echo(to_json(rows))
        return
    table = Table(
        Column("sweep", overflow="fold"),
        Column("state", no_wrap=True),
        Column("trainings", justify="right"),
        Column("stuck rate", no_wrap=True),
        Column("solved rate", no_wrap=True),
        Column("size", justify="right", no_wrap=True),
        Column("tags, note", overflow="fold"),
        box=None,
        header_style="bold",
    )
    for row in rows:
        remembered = [f"{name}={value}" for name, value in row.tags.items()] + [row.note] * bool(row.note)
        shares = (share_label(row.stuck), share_label(row.solved))
        size = decimal(row.n_bytes)
        table.add_row(as_argument(row.place), row.state, f"{row.n_trainings:,}", *shares, size, "; ".join(remembered))
    console = PlainConsole()
    # The table may be wider than the terminal, because users cannot copy a path that is split over several lines.
    width = max(console.width, console.measure(table, options=console.options.update_width(_WIDEST)).maximum)
    PlainConsole(width=width).print(table if rows else "no sweep there")


def _listed(place: Place, n_bytes: int) -> Listed:
    try:
        directory = SweepDirectory.open(place)
        progress = directory.progress
        is_running = progress.is_running(datetime.now(UTC))
        state = "finished" if progress.finished else "running" if is_running else "not finished"
    except UserError as error:
        return Listed(str(place), f"damaged: {error.given}", 0, NOTHING, NOTHING, n_bytes, "")
    try:
        n_trainings, stuck, solved = Ledger(place).ask(partial(_rates, directory=directory), ["trainings"])
    except UserError as error:
        n_trainings, stuck, solved = 0, NOTHING, NOTHING
        if place.has_folder("trainings") and place.names("trainings"):
            state = f"damaged: {error.given}"
    created = str(directory.provenance.get("created_at", ""))
    return Listed(str(place), state, n_trainings, stuck, solved, n_bytes, created, directory.note, dict(directory.tags))


def _rates(connection: duckdb.DuckDBPyConnection, directory: SweepDirectory) -> tuple[int, Rate, Rate]:
    ((n_trainings,),) = connection.execute("select count(*) from trainings").fetchall()
    return n_trainings, stuck_rate(connection, directory.spec), solved_rate(connection, directory.spec)
