"""Publishes copies of finished sweeps in docs/ledgers, one file per table: the data behind the documentation's numbers.

python -m attnsweep.reproduction.ledgers sweeps/zeros/stuck_full docs/ledgers/stuck_full --ends

If trials do not depend on each other, `--trials M` publishes the first M trials of an interrupted sweep: the sweep that
`attnsweep run --trials M` would have trained.
"""

import argparse
import re
import sys
from pathlib import Path

import pyarrow as pa

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.schema import schemas_of
from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.storage.locks import LEASE_FILE
from attnsweep.orchestrator.storage.place_names import place_of
from attnsweep.orchestrator.storage.sweep_directory import COURSE, SWEEP_FILE, SweepDirectory
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.registry import load_workload

_ALL = "from {} where trial < {}"
_ENDS = "from {} where trial < {} qualify step = max(step) over (partition by training_id, metric)"
_LAST_HEADS = "from {} where trial < {} qualify step = max(step) over (partition by training_id)"
_INDEPENDENT = ("random",)
"""The samplers whose first trials do not depend on the number of trials."""


def publish(source: Path, target: Path, *, ends_only: bool, last_heads: bool = False, trials: int | None = None) -> int:
    """Writes a copy of a finished sweep that can be queried, reported and opened, but not continued.

    The copy has no journal of the study. File paths in the sweep's command and parameters are cut to the file's name.

    Args:
        source: A sweep directory.
        target: The copy to write.
        ends_only: Keep only the last value of each curve.
        last_heads: Keep only the heads of each training's last probe. When roles emerge cannot be read from these.
        trials: Keep only the first trials, all of which must have ended; by default all trials of a finished sweep.

    Returns:
        The size of the copy in bytes.

    Raises:
        UserError: If the sweep or the chosen trials are not finished, the workload is not shipped, or the target
            exists.
    """
    sweep = SweepDirectory.open(source)
    if sweep.code or not (sweep.finished if trials is None else _have_ended(sweep, trials)):
        raise UserError(
            "SWEEP",
            given=str(source),
            expected="a finished sweep of a workload that attnsweep ships",
            fix="finish the sweep with: attnsweep resume",
        )
    if target.exists():
        raise UserError(
            "TARGET", given=str(target), expected="a new directory", fix="remove the directory, or choose another one"
        )
    spec = sweep.spec if trials is None else sweep.spec.but(trials=trials)
    named = {name: Path(str(value)).name for name, value in spec.fixed().items() if value in sweep.files}
    spec = spec.fix(named)
    tables = _tables(Ledger(source), spec.trials, ends_only=ends_only, last_heads=last_heads)
    target.mkdir(parents=True)
    workload = load_workload(spec.workload)
    schemas = schemas_of(workload)
    tables["trainings"] = _with_new_columns(tables["trainings"], schemas["trainings"])
    columns = {f"param_{name}": value for name, value in named.items()}
    if workload.parameters.variant_field in named:
        columns["variant"] = named[workload.parameters.variant_field]
    for column, value in columns.items():
        tables["trainings"] = _with_value(tables["trainings"], column, value)
    files = {Path(path).name: digest for path, digest in sweep.files.items()}
    kept = sweep if spec == sweep.spec else sweep.but(spec=spec, spec_sha256=spec.sha256(), files=files)
    with LedgerWriter(place_of(target), schemas, kept.spec_sha256) as writer:
        writer.commit("published", *(table if table.num_rows else None for table in tables.values()))
    command = re.sub(r"(?<![^\s=])/\S*", lambda path: Path(path[0]).name, sweep.provenance["command"])
    (target / SWEEP_FILE).write_text(kept.but(provenance={**sweep.provenance, "command": command}).text())
    if trials is None:
        (target / COURSE.name).write_bytes((source / COURSE.name).read_bytes())
    else:
        SweepDirectory.open(target).record_run(finished=True, seconds=sweep.seconds_spent)
    (target / LEASE_FILE).unlink(missing_ok=True)
    return sum(path.stat().st_size for path in target.rglob("*") if path.is_file())


def _tables(ledger: Ledger, n_trials: int, *, ends_only: bool, last_heads: bool) -> dict[str, pa.Table]:
    queries = {
        "trainings": _ALL,
        "curves": _ENDS if ends_only else _ALL,
        "heads": _LAST_HEADS if last_heads else _ALL,
    }
    with ledger.connect() as connection:
        return {name: connection.sql(query.format(name, n_trials)).to_arrow_table() for name, query in queries.items()}


def _have_ended(sweep: SweepDirectory, trials: int) -> bool:
    """Returns whether the first `trials` trials of an unfinished sweep can be published as a sweep of their own. For
    this, all of them must have ended, and the sampler must choose the same parameters if there are no further trials.
    """
    if sweep.is_extended or sweep.spec.sampler not in _INDEPENDENT or not isinstance(sweep.spec.replicates, int):
        return False
    with Ledger(sweep.place).connect() as connection:
        [(n,)] = connection.execute("select count(*) from trainings where trial < ?", [trials]).fetchall()
    return bool(n == trials * sweep.spec.replicates)


def _with_new_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns a table written by an older version with the columns that have been added since, filled with nulls."""
    for field in schema:
        if field.nullable and field.name not in table.column_names:
            table = table.append_column(field.name, pa.nulls(table.num_rows, field.type))
    return table


def _with_value(table: pa.Table, column: str, value: str) -> pa.Table:
    place = table.column_names.index(column)
    field = table.schema.field(place)
    return table.set_column(place, field, pa.array([value] * table.num_rows).cast(field.type))


def main() -> int:
    """Copies the sweep that the arguments of the command name to a folder for publication, and prints the size of the
    copy. Returns the exit code of the command: 0, or 2 for a bad argument."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--ends", action="store_true", help="keep only the last value of each curve")
    parser.add_argument("--last-heads", action="store_true", help="keep only the last probe of each training's heads")
    parser.add_argument("--trials", type=int, metavar="M", help="keep the first M trials of an interrupted sweep")
    options = parser.parse_args()
    try:
        n_bytes = publish(
            options.sweep, options.target, ends_only=options.ends, last_heads=options.last_heads, trials=options.trials
        )
    except UserError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    print(f"{options.target}: {n_bytes / 1e6:.1f} MB")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
