"""Checks that MLflow has one finished run for each complete trial, with its values, and no other run."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest

from attnsweep.orchestrator.analysis.labels import clipped
from attnsweep.orchestrator.audit.check_trials import Books
from attnsweep.orchestrator.audit.problems import Fault, Problem
from attnsweep.orchestrator.tracking.content import TrialValues, has_runs_of_trials
from attnsweep.orchestrator.tracking.mlflow_store import Child, Logged

_SYNC = "log what is missing with: attnsweep mlflow-sync DIR"
_LOG_AGAIN = (
    "if all else is sound, delete the run with: mlflow runs delete --run-id ID, "
    "and log it again with: attnsweep mlflow-sync DIR"
)
_DELETE = "delete the surplus with: mlflow runs delete --run-id ID"

_NONE = Problem("sweeps without a run", _SYNC)
_PARENTS = Problem("runs of the sweep itself instead of one", _DELETE)
_COUNT = Problem("runs of the sweep with another number of trainings", _SYNC)
_MISSING = Problem("complete trials without a finished run", _SYNC)
_TWICE = Problem("trials with several runs", _DELETE)
_UNKNOWN = Problem("runs of incomplete trials", _DELETE)
_VALUES = Problem("trials whose run has another value than the ledger", _LOG_AGAIN)


def compare_logged(logged: Logged, books: Books) -> Iterator[Fault]:
    trials = set(books.complete)
    n_trainings = books.rows.num_rows
    if len(logged.parents) > 1:
        yield from ((_PARENTS, run) for run in logged.parents)
    if books.finished:
        if not logged.parents:
            yield _NONE, books.directory.sweep
        for run, n in logged.parents.items():
            if n != n_trainings:
                yield _COUNT, f"{run} ({n or 'none'}, not {n_trainings})"
        if has_runs_of_trials(books.directory.spec):
            yield from ((_MISSING, f"{trial}") for trial in sorted(trials - logged.finished))
    runs = Counter(child.trial for child in logged.children)
    for trial in sorted(trial for trial, n in runs.items() if n > 1):
        yield _TWICE, f"{trial} ({', '.join(logged.runs_of(trial))})"
    # While the sweep adds replicates or repeats failed trainings, a complete trial becomes incomplete again. That
    # MLflow already has a run of this trial is no error.
    changing = (books.directory.more_replicates or books.directory.retried) and not books.finished
    before = {trial.number for trial in books.asked} if changing else set()
    for trial in sorted(runs.keys() - trials - before):
        yield _UNKNOWN, f"{trial} ({', '.join(logged.runs_of(trial))})"
    for child in sorted(logged.children, key=lambda child: child.trial):
        if child.finished and child.trial in trials and not (before and _is_behind(child, books)):
            deviation = _deviation(child.values, books.values[child.trial])
            if deviation:
                yield _VALUES, f"{child.trial} ({child.run_id}: {deviation})"


def _is_behind(child: Child, books: Books) -> bool:
    """Whether rows changed after the trial was logged."""
    if books.directory.retried_of(child.trial):
        return True
    return child.values.metrics.get("n_trainings") != books.values[child.trial].metrics["n_trainings"]


def _deviation(logged: TrialValues, recorded: TrialValues) -> str | None:
    for name, param in recorded.params.items():
        if (found := logged.params.get(name)) != param:
            differ = (at for at, (a, b) in enumerate(zip_longest(found or "", param)) if a != b)
            start = max(next(differ, 0) - 10, 0)
            return f"{name} {_from(start, found)}, not {_from(start, param)}"
    for name, metric in recorded.metrics.items():
        # Training times are not compared, because they change if a training is repeated after its rows were damaged.
        # Other values are compared with a tolerance, because another version of MLflow or attnsweep may have rounded
        # the last digit differently.
        value = logged.metrics.get(name, math.nan)
        if name != "train_seconds" and not math.isclose(value, metric, rel_tol=1e-9):
            return f"{name} {logged.metrics.get(name)}, not {metric}"
    return None


def _from(start: int, text: str | None) -> str:
    return "None" if text is None else ("…" if start else "") + clipped(text[start:], 40)
