"""Audits a sweep.

A running sweep commits rows to the ledger, then reports to the study, then logs to MLflow. The audit reads them in
reverse order, so whatever is in one of them must also be in the next one that it reads, even while the sweep runs.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from optuna.trial import FrozenTrial

from attnsweep.orchestrator.ledger.reader import Ledger, reading
from attnsweep.orchestrator.running.signals import refuse_if_interrupted
from attnsweep.orchestrator.running.study import has_study, read_trials
from attnsweep.orchestrator.storage.copies import name_of
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.files import parquet_names
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.record import DamagedRecordError
from attnsweep.orchestrator.storage.run_records import PROGRESS, Progress
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SWEEP_FILE, SweepDirectory
from attnsweep.orchestrator.tools.audit.check_files import check_files
from attnsweep.orchestrator.tools.audit.check_results import Books, check_results, numbered_trials
from attnsweep.orchestrator.tools.audit.problems import RESTORE, RESUME, Audit, Check, Problem, in_one_line
from attnsweep.orchestrator.tracking.runs import Logged, look_up
from attnsweep.orchestrator.tracking.store import in_one_line as error_in_one_line
from attnsweep.orchestrator.tracking.store import tracking_uri
from attnsweep.workloads.errors import UserError

T = TypeVar("T")


def audit(where: PlaceName, uri: str | None = None) -> Audit:
    """Checks that a sweep's study, ledger, files and MLflow runs agree. `uri`: as for `tracking_uri`.

    Raises:
        UserError: If there is no sweep.
    """
    try:
        directory = SweepDirectory.open(where)
    except DamagedRecordError as damage:
        check = Check(f"{SWEEP_FILE} cannot be read: nothing else was checked", [Problem.of(damage)])
        return Audit(directory=str(where), sweep=None, finished=None, trials={}, checks=[check])
    unread: list[Check] = []
    progress = Progress()
    try:
        progress = PROGRESS.read(directory.place)
    except FileNotFoundError:
        pass
    except DamagedRecordError as damage:
        unread = [Check(f"{PROGRESS.name} cannot be read", [Problem.of(damage)])]
    finished, store = progress.finished, tracking_uri(uri)
    subject = f"MLflow ({without_credentials(store)})"
    logged = _attempt(subject, "start it, or give another --tracking-uri", lambda: look_up(directory, store))
    n_logged = None if isinstance(logged, Problem) else len(logged.finished)
    trials: Mapping[str, int | None] = {"asked": None, "trained": None, "told": None, "logged": n_logged}
    read = _attempt("trials and trainings", RESTORE, lambda: _compared(directory, logged, finished=finished))
    if isinstance(read, Problem):
        checks = [Check(f"{in_one_line(trials)} trials", [read])]
    else:
        trials, checks = read
    if isinstance(logged, Problem):
        checks.append(Check("MLflow: ?", [logged]))
    spec = Check(f"{SWEEP_FILE}: the spec as it was written, sha256 {directory.spec_sha256[:12]}")
    checks += [spec, *unread, check_files(directory, finished=finished), *_replayed(progress)]
    known = None if unread else finished
    return Audit(
        directory=name_of(directory.place), sweep=directory.sweep, finished=known, trials=trials, checks=checks
    )


def _compared(
    directory: SweepDirectory, logged: Logged | Problem, *, finished: bool
) -> tuple[Mapping[str, int | None], list[Check]]:
    place, workload = directory.place, load_workload_of(directory)

    def stored() -> list[FrozenTrial]:
        is_begun = (
            finished or directory.spec.storage or (place / STUDY_FILE).exists() or parquet_names(place / "trainings")
        )
        return read_trials(directory) if is_begun and has_study(directory.spec) else []

    trials = stored()
    with reading([Ledger(place)]) as connection:
        # A running sweep may have asked for trials, and trained them, since the study was read.
        known = frozenset(trial.number for trial in (trials if finished else stored()))
        if not has_study(directory.spec):
            trials = numbered_trials(directory, connection, finished=finished)
            known = frozenset(directory.shard.first(directory.own_spec.trials))
        books = Books(
            directory=directory,
            workload=workload,
            finished=finished,
            trials=trials,
            known=known,
            connection=connection,
            logged=None if isinstance(logged, Problem) else logged,
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
