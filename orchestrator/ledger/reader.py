"""Reads a sweep's ledger, also during a run. Each call sees every committed row exactly once."""

import resource
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from attnsweep.orchestrator.ledger.fragments import TABLES
from attnsweep.orchestrator.ledger.snapshot import Snapshot, naming_damage, open_snapshot, require_ledger
from attnsweep.orchestrator.ledger.views import Tables, connect, connect_to_shared
from attnsweep.orchestrator.storage.place_names import PlaceName, place_of

T = TypeVar("T")


class Ledger:
    """The tables of one sweep: `trainings`, `curves` and `heads`, also by SQL. Raises UserError if there is none."""

    def __init__(self, where: PlaceName) -> None:
        self.place = place_of(where)
        require_ledger(self.place)

    def trainings(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> pa.Table:
        return self._read("trainings", columns, filter)

    def curves(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> pa.Table:
        """One row per training, probe and metric."""
        return self._read("curves", columns, filter)

    def heads(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> pa.Table:
        """One row per training, probe, layer and head; none for a workload without heads."""
        return self._read("heads", columns, filter)

    def curves_every(self) -> int:
        """1 if the curves hold every probe, k if they hold every k-th; the largest k over the ledger's parts."""
        return max(self.snapshot(["trainings"]).by_thinning(), default=1)

    def connect(self) -> duckdb.DuckDBPyConnection:
        return connect([self.tables()])

    def ask(self, question: Callable[[duckdb.DuckDBPyConnection], T], tables: Collection[str] = TABLES) -> T:
        """Answers a question by SQL. Other tables than `tables` are not opened and look empty."""
        with reading([self], tables=tables) as connection:
            return question(connection)

    def tables(self) -> Tables:
        return self.snapshot().tables()

    def snapshot(self, tables: Collection[str] = TABLES) -> Snapshot:
        return open_snapshot(self.place, tables)

    def _read(self, table: str, columns: Sequence[str] | None, filter: pc.Expression | None) -> pa.Table:
        names = None if columns is None else list(columns)
        return self.snapshot([table]).read(table, columns=names, filter=filter)


def allow_many_files() -> None:
    """Raises the limit on open files to the system's maximum: a sweep opens some 42, and shells allow 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def reading(
    ledgers: Sequence[Ledger],
    trials_apart: int = 0,
    *,
    tables: Collection[str] = TABLES,
    connecting: Callable[..., duckdb.DuckDBPyConnection] = connect_to_shared,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to one or more sweeps. Raises UserError for a damaged file."""
    if len(ledgers) > 1:
        allow_many_files()
    with (
        naming_damage([ledger.place for ledger in ledgers]),
        connecting([ledger.snapshot(tables).tables() for ledger in ledgers], trials_apart) as connection,
    ):
        yield connection
