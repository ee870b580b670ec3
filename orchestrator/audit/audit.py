"""Audits a sweep.

A running sweep commits rows to the ledger, then reports to the study, then logs to MLflow. The audit reads them in
reverse order, so whatever is in one of them must also be in the next one that it reads, even while the sweep runs.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

from attnsweep.orchestrator.analysis.machines import are_several, types_in_words
from attnsweep.orchestrator.audit.check_files import (
    check_course,
    check_files,
    check_journal,
    check_links,
    check_stored,
    count_files,
)
from attnsweep.orchestrator.audit.check_mlflow import compare_logged
from attnsweep.orchestrator.audit.check_trials import (
    RESTORE,
    RESUME,
    Books,
    changed_parameters,
    compare_pruned,
    compare_trainings,
    compare_trials,
)
from attnsweep.orchestrator.audit.problems import Audit, Check, Problem, grouped, in_one_line
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.signals import refuse_if_interrupted
from attnsweep.orchestrator.running.study import read_trials
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.record import DamagedRecordError
from attnsweep.orchestrator.storage.run_records import REPLAYS, read_replays
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SWEEP_FILE, SweepDirectory
from attnsweep.orchestrator.tracking.content import trial_values
from attnsweep.orchestrator.tracking.mlflow_store import Logged, look_up
from attnsweep.orchestrator.tracking.store import in_one_line as error_in_one_line
from attnsweep.orchestrator.tracking.store import tracking_uri
from attnsweep.workloads.errors import UserError

T = TypeVar("T")

_ROWS = """
select sweep, trial, replicate, training_id, seed, pack, n_steps, outcome, stuck, eval_loss, onset_step,
    environment::varchar as environment, columns('^(param_.*|pruned_step)$')
from trainings order by trial, replicate
"""


def audit(where: PlaceName, uri: str | None = None) -> Audit:
    """Checks that a sweep's study, ledger, files and MLflow runs agree. `uri`: as for `tracking_uri`.

    Raises:
        UserError: If there is no sweep.
    """
    try:
        directory = SweepDirectory.open(where)
    except DamagedRecordError as damage:
        check = Check(f"{SWEEP_FILE} cannot be read: nothing else was checked", (Problem.of(damage),))
        return Audit(directory=str(where), sweep=None, finished=None, counts={}, checks=(check,))
    known, unreadable = check_course(directory)
    finished = bool(known)
    store = tracking_uri(uri)
    logged = _attempt(
        f"MLflow ({without_credentials(store)})",
        "start it, or give another --tracking-uri",
        lambda: look_up(directory, store),
    )
    read = _attempt("trials and trainings", RESTORE, lambda: _read(directory, finished=finished))
    counts, checks = _checks(logged, read)
    spec = Check(f"{SWEEP_FILE}: the spec as it was written, sha256 {directory.spec_sha256[:12]}")
    problems = (*check_files(directory.place, directory.spec_sha256, finished=finished), *check_stored(directory))
    files = Check(
        f"files {count_files(directory.place)}" + ("" if problems else ", unchanged since they were written"), problems
    )
    journal = check_journal(directory, finished=finished)
    results = (*checks, spec, *unreadable, *journal, files, *_replayed(directory, finished=finished))
    return Audit(
        directory=str(directory.place),
        sweep=directory.sweep,
        finished=known,
        counts=counts,
        checks=results,
    )


def _replayed(directory: SweepDirectory, *, finished: bool) -> list[Check]:
    try:
        replays = read_replays(directory)
    except DamagedRecordError as damage:
        return [Check(f"{REPLAYS.name} cannot be read", (Problem.of(damage),))]
    if replays is None:
        lacking = Problem("no training was replayed", RESUME)
        return [Check("replayed no training", (lacking,))] if finished else []
    problems = tuple(
        Problem(
            f"{training_id} ends differently when trained again ({', '.join(columns)})",
            f"see: attnsweep replay DIR {training_id}",
        )
        for training_id, columns in replays.disagreeing.items()
    )
    return [Check(str(replays), problems)]


def _read(directory: SweepDirectory, *, finished: bool) -> tuple[Books, tuple[Problem, ...]]:
    workload = load_workload_of(directory)
    trials = [] if _is_untouched(directory, finished=finished) else read_trials(directory)

    table, values, problems = Ledger(directory.place).ask(
        lambda connection: (
            connection.sql(_ROWS).to_arrow_table(),
            trial_values(connection, directory),
            check_links(connection),
        )
    )
    # The study (Optuna's record of the trials) was read before the ledger's rows. If the sweep runs, trials may have
    # been added between these two reads, so that there are rows of trials that the study did not have yet. Therefore
    # the study is read once more.
    later = trials if finished or _is_untouched(directory, finished=finished) else read_trials(directory)
    known = frozenset(trial.number for trial in later)
    books = Books(
        directory=directory, workload=workload, finished=finished, trials=trials, known=known, rows=table, values=values
    )
    return books, problems


def _is_untouched(directory: SweepDirectory, *, finished: bool) -> bool:
    """Whether a sweep has neither study nor trainings."""
    place = directory.place
    has_study = directory.spec.storage or place.has_text(STUDY_FILE) or place.has_folder(STUDY_FILE)
    return not (finished or has_study or place.names("trainings"))


def _checks(
    logged: Logged | Problem, read: tuple[Books, tuple[Problem, ...]] | Problem
) -> tuple[dict[str, int | None], list[Check]]:
    n_logged = None if isinstance(logged, Problem) else len(logged.finished)
    if isinstance(read, Problem):
        unread = logged if isinstance(logged, Problem) else None
        counts = {"asked": None, "trained": None, "told": None, "logged": n_logged}
        return counts, [Check(f"{in_one_line(counts)} trials", (read, *([unread] if unread else [])))]
    books, links = read
    counts = books.count_trials() | {"logged": n_logged}
    n_refused = len(books.trials) - len(books.asked)
    refused = f", {n_refused} more refused" if n_refused else ""
    trainings = {"trainings": books.rows.num_rows, "wanted": books.count_wanted()}
    changed = changed_parameters(books)
    every = Ledger(books.directory.place).curves_every()
    thinned = f" (thinned to one probe in {every})" if every > 1 else ""
    if isinstance(logged, Problem):
        mlflow = Check("MLflow: ?", (logged,))
    else:
        runs = f"{len(logged.children):,} runs of trials, {len(logged.parents)} of the sweep"
        mlflow = Check(f"MLflow: {runs}", grouped(compare_logged(logged, books)))
    return counts, [
        Check(
            f"{in_one_line(counts)} trials{refused}", (*grouped(compare_trials(books)), *grouped(compare_pruned(books)))
        ),
        Check(
            f"{in_one_line(trainings)}; parameters, seeds and ids recomputed",
            (changed,) if changed else grouped(compare_trainings(books)),
        ),
        Check(f"curves and heads belong to these trainings; only failed ones lack curves{thinned}", links),
        *check_machines(Counter(books.rows["environment"].to_pylist()), books.directory),
        mlflow,
    ]


def check_machines(trainings: Mapping[str | None, int], directory: SweepDirectory) -> list[Check]:
    """Reports trainings whose machine `sweep.json` does not name, by the id of their environment, if recorded."""
    unknown = sorted(name for name in trainings if name is not None and name not in directory.environments)
    if unknown and directory.environments:
        n = sum(trainings[name] for name in unknown)
        what = f"{n:,} trainings of environments that {SWEEP_FILE} does not name: {', '.join(unknown)}"
        problem = Problem(what, f"restore {SWEEP_FILE} from a copy of the directory")
        return [Check("environments of the trainings", (problem,))]
    if not are_several(trainings, [directory]):
        return []
    words = types_in_words(trainings, [directory])
    return [Check(f"trained on machines of several types, between which last bits may differ: {words}")]


def _attempt(subject: str, fix: str, reading: Callable[[], T]) -> T | Problem:
    try:
        return reading()
    except UserError as damage:
        refuse_if_interrupted()
        return Problem(f"not checked: {subject}: {damage.subject}: {damage.given}", damage.fix)
    except Exception as error:  # noqa: BLE001  # Arrow, DuckDB, Optuna and MLflow raise anything on damaged data.
        refuse_if_interrupted()
        return Problem(f"not checked: {subject}: {error_in_one_line(error)}", fix)
