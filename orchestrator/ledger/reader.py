"""Reads a sweep's ledger, also during a run. Each call sees every committed row exactly once."""

import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from attnsweep.orchestrator.ledger.fragments import (
    Snapshot,
    fragment_names,
    has_overtaken,
    open_snapshot,
    require_ledger,
)
from attnsweep.orchestrator.ledger.verification import naming_damage
from attnsweep.orchestrator.ledger.views import Tables, connect, connect_to_shared
from attnsweep.orchestrator.storage.place_names import PlaceName, place_of

T = TypeVar("T")

_ATTEMPTS = 5
"""How often a read from an object store is attempted, if each time a compaction removes a file before it is read."""


class Ledger:
    """The tables of one sweep: `trainings`, `curves` and `heads`, also by SQL.

    Raises:
        UserError: If the place holds no ledger. Every method raises it for a file that cannot be read.
    """

    def __init__(self, where: PlaceName) -> None:
        self.place = place_of(where)
        require_ledger(self.place)
        self._fetched: tuple[list[str], Tables] | None = None

    def trainings(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> pa.Table:
        return self._read("trainings", columns, filter)

    def curves(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> pa.Table:
        """One row per training, probe and metric."""
        return self._read("curves", columns, filter)

    def heads(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> pa.Table:
        """One row per training, probe, layer and head; none for a workload without heads."""
        return self._read("heads", columns, filter)

    def curves_every(self) -> int:
        """1 if every probe is stored, else k."""
        return max(open_snapshot(self.place).by_thinning(), default=1)

    def connect(self) -> duckdb.DuckDBPyConnection:
        """The views `trainings`, `curves`, `heads` and `trials` of the rows that are committed now."""
        return connect([self.tables()])

    def ask(self, question: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        return ask_all([self], question)

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with naming_damage([self.place]), connect_to_shared([self.tables()]) as connection:
            yield connection

    def tables(self) -> Tables:
        """All tables by name, with the rows that are committed now."""
        if self.place.pins_open_files:
            return open_snapshot(self.place).tables()

        def fetch(snapshots: list[Snapshot]) -> tuple[list[str], Tables]:
            with self.place.answering():
                tables = {name: ds.dataset(table.to_table()) for name, table in snapshots[0].tables().items()}
            return sorted(snapshots[0].rows()), tables

        # File names end with a digest of the content. So if all names are the same, the contents are the same.
        if self._fetched is None or self._fetched[0] != fragment_names(self.place):
            self._fetched = _steadily([self], fetch)
        return self._fetched[1]

    def _read(self, table: str, columns: Sequence[str] | None, filter: pc.Expression | None) -> pa.Table:
        names = None if columns is None else list(columns)
        # Reading ahead takes a gigabyte of memory for a million trainings. So Arrow reads ahead only in files of an
        # object store, not in local files.
        options = ds.ParquetFragmentScanOptions(
            page_checksum_verification=True, pre_buffer=not self.place.pins_open_files
        )

        def rows(snapshots: list[Snapshot]) -> pa.Table:
            with self.place.answering():
                return snapshots[0].dataset(table).to_table(columns=names, filter=filter, fragment_scan_options=options)

        return _steadily([self], rows)


def allow_many_files() -> None:
    """Raises the limit on open files to the system's maximum: a sweep opens up to 42, and shells allow 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def ask_all(ledgers: Sequence[Ledger], question: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
    """Asks about the rows of several sweeps together."""

    if len(ledgers) > 1:
        allow_many_files()

    def answer(snapshots: list[Snapshot]) -> T:
        with connect_to_shared([snapshot.tables() for snapshot in snapshots]) as connection:
            return question(connection)

    return _steadily(ledgers, answer)


def _steadily(ledgers: Sequence[Ledger], read: Callable[[list[Snapshot]], T]) -> T:
    with naming_damage([ledger.place for ledger in ledgers]):
        for attempt in count(1):
            snapshots = [open_snapshot(ledger.place) for ledger in ledgers]
            try:
                return read(snapshots)
            except Exception:
                # For a file that is missing, Arrow and DuckDB raise different exceptions, so all exceptions are caught
                # here.
                overtaken = (
                    not ledger.place.pins_open_files and has_overtaken(fragment_names(ledger.place), snapshot.rows())
                    for ledger, snapshot in zip(ledgers, snapshots, strict=True)
                )
                if attempt == _ATTEMPTS or not any(overtaken):
                    raise
    raise AssertionError
