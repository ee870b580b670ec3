"""Told = logged: one finished run in MLflow for each complete trial, and no other."""

from collections import Counter

from orchestrator.audit.books import Books
from orchestrator.audit.trials import complete
from orchestrator.audit.verdict import Faults, Problem
from orchestrator.tracking.lookup import Logged

_SYNC = "log what is missing with: attnsweep mlflow-sync DIR"
_DELETE = "delete what is too much with: mlflow runs delete --run-id ID"

_NONE = "sweeps without a run"
_PARENTS = "runs of the sweep itself, and not one"
_COUNT = "runs of the sweep that count other trainings"
_MISSING = "complete trials without a finished run"
_TWICE = "trials with several runs"
_UNKNOWN = "runs of trials that are not complete"

_MENDS = {_NONE: _SYNC, _PARENTS: _DELETE, _COUNT: _SYNC, _MISSING: _SYNC, _TWICE: _DELETE, _UNKNOWN: _DELETE}


def compare_logged(logged: Logged, books: Books) -> tuple[Problem, ...]:
    """What MLflow does not have as the ledger does. While a sweep is not finished MLflow may lag behind."""
    faults = Faults(_MENDS)
    trials = complete(books)
    n_trainings = books.rows.num_rows
    if len(logged.parents) > 1:
        faults.add(_PARENTS, *logged.parents)
    if books.finished:
        faults.add(_NONE, *([] if logged.parents else [books.directory.sweep]))
        wrong = {run: n for run, n in logged.parents.items() if n != n_trainings}
        faults.add(_COUNT, *(f"{run} ({n or 'none'}, not {n_trainings})" for run, n in wrong.items()))
        faults.add(_MISSING, *(str(trial) for trial in trials if trial not in logged.finished))
    runs = Counter(child.trial for child in logged.children)
    several = sorted(trial for trial, n in runs.items() if n > 1)
    faults.add(_TWICE, *(f"{trial} ({', '.join(logged.runs_of(trial))})" for trial in several))
    unknown = sorted(runs.keys() - set(trials))
    faults.add(_UNKNOWN, *(f"{trial} ({', '.join(logged.runs_of(trial))})" for trial in unknown))
    return faults.problems()
