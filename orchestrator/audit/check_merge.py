"""Checks a merged directory: its files, its tables, and that the rows of every merged sweep are complete."""

import duckdb

from attnsweep.orchestrator.analysis.machines import environments_in
from attnsweep.orchestrator.audit.check_files import check_files, check_links, count_files
from attnsweep.orchestrator.audit.check_machines import check_machines
from attnsweep.orchestrator.audit.check_stored import check_stored
from attnsweep.orchestrator.audit.problems import Audit, Check, Faults, Problem
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.record import DamagedRecordError
from attnsweep.orchestrator.storage.sweep_directory import COURSE, SWEEP_FILE, SweepDirectory
from attnsweep.workloads.errors import UserError

_COUNT = "sweeps with another number of trainings than when they were merged"
_STRANGE = "sweeps that were not merged into it"
_NUMBERS = "sweeps whose trials have other numbers than they were given"
_TWICE = "trainings recorded more than once"
_AGAIN = "merge them again with: attnsweep merge OUT DIR DIR"


def audit_merged(directory: SweepDirectory) -> Audit:
    """Audits a directory of merged sweeps. It has no study and no MLflow runs to compare with; only the original
    sweeps have them."""
    finished, unreadable = _is_finished(directory)
    problems = (
        *check_files(directory.place, directory.spec_sha256, finished=bool(finished)),
        *check_stored(directory),
    )
    try:
        rows, links, machines = Ledger(directory.place).ask(
            lambda connection: (
                _compare_sources(connection, directory),
                check_links(connection),
                check_machines(environments_in(connection), directory),
            )
        )
    except UserError as damage:
        rows, links, machines = (Problem(f"not checked: {damage.subject}: {damage.given}", damage.fix),), (), []
    n_trainings = sum(source.n_trainings for source in directory.sources)
    return Audit(
        directory=str(directory.place),
        sweep=directory.sweep,
        finished=finished,
        counts={},
        checks=(
            Check(f"{n_trainings:,} trainings of {len(directory.sources)} merged sweeps", rows),
            Check("curves and heads belong to these trainings; only failed ones lack curves", links),
            *machines,
            Check(f"{SWEEP_FILE}: the spec as it was written, sha256 {directory.spec_sha256[:12]}"),
            *unreadable,
            Check(f"files {count_files(directory.place)}", problems),
        ),
    )


def _is_finished(directory: SweepDirectory) -> tuple[bool | None, list[Check]]:
    """Returns whether the merge is finished. If the merge's record cannot be read, returns `None` and a check with
    that problem."""
    try:
        return directory.finished, []
    except DamagedRecordError as damage:
        problem = Problem(f"{damage.subject}: {damage.given}", _AGAIN)
        return None, [Check(f"{COURSE.name} cannot be read", (problem,))]


def _compare_sources(connection: duckdb.DuckDBPyConnection, directory: SweepDirectory) -> tuple[Problem, ...]:
    faults = Faults(dict.fromkeys((_COUNT, _STRANGE, _NUMBERS, _TWICE), _AGAIN))
    ranges = {
        sweep: (n, low, high)
        for sweep, n, low, high in connection.execute(
            "select sweep, count(*), min(trial), max(trial) from trainings group by sweep order by sweep"
        ).fetchall()
    }
    nexts = (*(source.first_trial for source in directory.sources[1:]), 2**31)
    for source, following in zip(directory.sources, nexts, strict=True):
        n, low, high = ranges.pop(source.sweep, (0, source.first_trial, source.first_trial))
        if n != source.n_trainings:
            faults.add(_COUNT, f"{source.sweep} ({n}, not {source.n_trainings})")
        if not source.first_trial <= low <= high < following:
            faults.add(_NUMBERS, f"{source.sweep} ({low}..{high}, not from {source.first_trial} on)")
    faults.add(_STRANGE, *ranges)
    twice = connection.execute("select trial, replicate from trainings group by all having count(*) > 1 order by all")
    faults.add(_TWICE, *(f"{trial}/{replicate}" for trial, replicate in twice.fetchall()))
    return faults.problems()
