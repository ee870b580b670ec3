"""What a forecast promised that a sweep costs, beside what it took."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnsweep.orchestrator.storage.promise import Promise, promise_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

if TYPE_CHECKING:
    import duckdb

_TABLES = ("trainings", "curves", "heads")


@dataclass(frozen=True, kw_only=True)
class Promised:
    """A promise, and what the sweep took.

    Attributes:
        promise: The promise.
        seconds: The sum of `train_seconds`.
        n_rows, n_bytes: In all tables.
    """

    promise: Promise
    seconds: float
    n_rows: int
    n_bytes: int

    def sentence(self) -> str:
        """For people."""
        promise = self.promise
        most = "at most " if promise.is_bound else ""
        return (
            f"promised {most}{promise.seconds:.2g} s of training ({promise.seconds_low:.2g} to"
            f" {promise.seconds_high:.2g}), {promise.n_rows:,} rows, {promise.n_bytes / 1e6:.2g} MB;"
            f" took {self.seconds:.2g} s, {self.n_rows:,} rows, {self.n_bytes / 1e6:.2g} MB"
        )

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "promised": self.promise.model_dump(),
            "took": {"seconds": self.seconds, "n_rows": self.n_rows, "n_bytes": self.n_bytes},
        }


def read_promised(connection: "duckdb.DuckDBPyConnection", directory: SweepDirectory) -> Promised | None:
    """The promise for a sweep and what it took; `None` if nothing was promised.

    Args:
        connection: Its ledger, as `Ledger.ask` opens it.
        directory: The sweep.
    """
    promise = promise_of(directory)
    if promise is None:
        return None
    ((seconds,),) = connection.execute("select coalesce(sum(train_seconds), 0) from trainings").fetchall()
    counts = [connection.execute(f"select count(*) from {table}").fetchall()[0][0] for table in _TABLES]
    sizes = directory.place.sizes()
    return Promised(
        promise=promise,
        seconds=seconds,
        n_rows=sum(counts),
        n_bytes=sum(size for name, size in sizes.items() if name.split("/")[0] in _TABLES),
    )
