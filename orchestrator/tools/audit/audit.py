"""Audits a sweep.

A sweep commits rows to the ledger, then tells the study, then logs to MLflow. The audit reads these in reverse order,
so that even while the sweep runs, whatever is in one of them must also be in the next.
"""

from collections.abc import Callable
from typing import TypeVar

from attnsweep.orchestrator.ledger.reader import Ledger, reading
from attnsweep.orchestrator.running.signals import refuse_if_interrupted
from attnsweep.orchestrator.running.study import has_study, read_trials
from attnsweep.orchestrator.storage.copies import name_of
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.files import parquet_names
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.record import DamagedRecordError
from attnsweep.orchestrator.storage.run_records import Progress
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SWEEP_FILE, SweepDirectory
from attnsweep.orchestrator.tools.audit.check_files import check_files
from attnsweep.orchestrator.tools.audit.check_results import Books, check_results, numbered_trials
from attnsweep.orchestrator.tools.audit.problems import RESTORE, RESUME, Audit, Check, Counts, Problem, in_one_line
from attnsweep.orchestrator.tracking.runs import Logged, look_up
from attnsweep.orchestrator.tracking.store import in_one_line as error_in_one_line
from attnsweep.orchestrator.tracking.store import tracking_uri
from attnsweep.workloads.errors import UserError

T = TypeVar("T")


def audit(where: PlaceName, uri: str | None = None) -> Audit:
    """`uri`: as for `tracking_uri`."""
    try:
        directory = SweepDirectory.open(where)
    except DamagedRecordError as damage:
        check = Check(f"{SWEEP_FILE} cannot be read: nothing else was checked", [Problem.of(damage)])
        return Audit(directory=str(where), sweep=None, finished=None, trials={}, checks=[check])
    progress, store = directory.progress, tracking_uri(uri)
    subject = f"MLflow ({without_credentials(store)})"
    logged = _attempt(subject, "start it, or give another --tracking-uri", lambda: look_up(directory, store))
    runs, unlogged = (None, [Check("MLflow: ?", [logged])]) if isinstance(logged, Problem) else (logged, [])
    compared = _attempt("trials and trainings", RESTORE, lambda: _compared(directory, runs, progress.finished))
    if isinstance(compared, Problem):
        n_logged = None if runs is None else len(runs.finished)
        trials: Counts = {"asked": None, "trained": None, "told": None, "logged": n_logged}
        checks = [Check(f"{in_one_line(trials)} trials", [compared])]
    else:
        trials, checks = compared
    spec = Check(f"{SWEEP_FILE}: the spec as it was written, sha256 {directory.spec_sha256[:12]}")
    files = check_files(directory, finished=progress.finished)
    return Audit(
        directory=name_of(directory.place),
        sweep=directory.sweep,
        finished=progress.finished,
        trials=trials,
        checks=[*checks, *unlogged, spec, files, *_replayed(progress)],
    )


def _compared(directory: SweepDirectory, logged: Logged | None, finished: bool) -> tuple[Counts, list[Check]]:
    place, spec, workload = directory.place, directory.spec, load_workload_of(directory)
    is_begun = finished or spec.storage or (place / STUDY_FILE).exists() or parquet_names(place / "trainings")
    trials = read_trials(directory) if is_begun and has_study(spec) else []
    with reading([Ledger(place)]) as connection:
        if not has_study(spec):
            trials = numbered_trials(directory, connection, finished=finished)
        books = Books(
            directory=directory,
            workload=workload,
            finished=finished,
            trials=trials,
            connection=connection,
            logged=logged,
        )
        return books.counts, check_results(books)


def _replayed(progress: Progress) -> list[Check]:
    replays, none = progress.replays, Check("replayed no training", [Problem("no training was replayed", RESUME)])
    if replays is None:
        return [none] if progress.finished else []
    problems = [
        Problem(
            f"{training_id} ends differently when trained again ({', '.join(columns)})",
            f"see: attnsweep replay DIR {training_id}",
        )
        for training_id, columns in replays.disagreeing.items()
    ]
    return [Check(str(replays), problems)]


def _attempt(subject: str, fix: str, call: Callable[[], T]) -> T | Problem:
    try:
        return call()
    except UserError as damage:
        refuse_if_interrupted()
        return Problem(f"not checked: {subject}: {damage.subject}: {damage.given}", damage.fix)
    except Exception as error:  # noqa: BLE001  # Arrow, DuckDB, Optuna and MLflow raise anything on damaged data.
        refuse_if_interrupted()
        return Problem(f"not checked: {subject}: {error_in_one_line(error)}", fix)
