"""Compares study, ledger and MLflow: every trial is trained as it was drawn, and its results are told and logged."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa
from optuna.trial import FrozenTrial, TrialState, create_trial

from attnsweep.orchestrator.ledger.trial import EndedTrainings, Told, complete_trials, ended_trainings, judging_columns
from attnsweep.orchestrator.ledger.views import identifier, names_with
from attnsweep.orchestrator.running.study import PRUNED_STEP, has_study
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tools.audit.problems import (
    COPIED,
    RESTORE,
    RESUME,
    Check,
    Counts,
    Fault,
    grouped,
    in_one_line,
)
from attnsweep.orchestrator.tracking.content import has_runs_of_trials
from attnsweep.orchestrator.tracking.runs import Logged
from attnsweep.orchestrator.training.tasks import Task, tasks_of, training_id
from attnsweep.search_spaces.numbered_draws import draws_of
from attnsweep.search_spaces.replication import n_wanted
from attnsweep.search_spaces.suggestion import values_of
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.vocabulary import PRUNED

_RESTORE_EITHER = f"restore the study, or {RESTORE}"
_OLD_VERSION = "audit it with the version of attnsweep and of the workload in sweep.json"
_SYNC = "log what is missing with: attnsweep mlflow-sync DIR"
_DELETE = "delete the surplus with: mlflow runs delete --run-id ID"
_TOLD = (TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED)


@dataclass(frozen=True, kw_only=True)
class Books:
    """Study, ledger and MLflow as read: MLflow first, the ledger last.

    Attributes:
        trials: The study's, read before the rows, so that every trial that has ended in it has all its rows; without a
            study those that follow from the sweep's seed.
        logged: `None` if MLflow cannot be read.
    """

    directory: SweepDirectory
    workload: Workload[Any]
    finished: bool
    trials: Sequence[FrozenTrial]
    connection: duckdb.DuckDBPyConnection
    logged: Logged | None

    def cases(self, what: str, fix: str, sql: str) -> Iterator[Fault]:
        """A fault for each row of a query, named by its columns, such as `trial/replicate`."""
        for row in self.connection.execute(sql).fetchall():
            yield what, fix, "/".join(map(str, row))

    @cached_property
    def asked(self) -> list[FrozenTrial]:
        """All except those that the workload refuses."""
        return [trial for trial in self.trials if trial.number in self.by_trial or not self._refuses(trial)]

    def _refuses(self, trial: FrozenTrial) -> bool:
        try:
            self.tasks(trial, [0])
        except (ValueError, KeyError):  # a parameter is missing from the study
            return False
        except SpecError:
            return True
        return False

    def tasks(self, trial: FrozenTrial, replicates: Iterable[int]) -> list[Task]:
        """Raises SpecError if the workload refuses its values, ValueError or KeyError if it lacks one."""
        values = self.directory.spec.completed(values_of(self.directory.spec, trial.params))
        return tasks_of(self.directory, self.workload.parameters, trial.number, values, replicates)

    @cached_property
    def by_trial(self) -> Mapping[int, EndedTrainings]:
        """Trials without trainings are left out."""
        return ended_trainings(judging_columns(self.connection))

    def ended(self, trial: int) -> EndedTrainings:
        return self.by_trial.get(trial, EndedTrainings())

    @cached_property
    def complete(self) -> list[int]:
        return complete_trials(self.connection, self.directory.spec.replicates)

    @cached_property
    def n_trainings(self) -> int:
        ((n,),) = self.connection.execute("select count(*) from trainings").fetchall()
        return int(n)

    @cached_property
    def counts(self) -> Counts:
        asked = {trial.number for trial in self.asked}
        return {
            "asked": len(asked),
            "trained": len(asked.intersection(self.complete)),
            "told": sum(trial.state in _TOLD for trial in self.asked),
            "logged": None if self.logged is None else len(self.logged.finished),
        }


def numbered_trials(
    directory: SweepDirectory, connection: duckdb.DuckDBPyConnection, *, finished: bool
) -> list[FrozenTrial]:
    """The trials of a sweep without a study, as a study would have them."""
    spec, draws = directory.own_spec, draws_of(directory.spec)
    complete = {*complete_trials(connection, spec.replicates)}
    begun = connection.execute("select distinct trial from trainings").fetchall()
    n_begun = max((directory.shard.number(trial) for (trial,) in begun), default=-1) + 1
    n_asked = spec.trials if finished and spec.seconds is None and not spec.ends_early else n_begun
    trials = []
    for number in directory.shard.first(n_asked):
        drawn, distributions = draws.draw(number)
        # FAIL is the state of a trial that has ended without a value: no study was told one.
        state = TrialState.FAIL if finished or number in complete else TrialState.RUNNING
        trial = create_trial(state=state, params=drawn, distributions=distributions)
        trial.number = number
        trials.append(trial)
    return trials


def _trials(books: Books) -> Iterator[Fault]:
    spec = books.directory.own_spec
    if books.finished and spec.seconds is None and not spec.ends_early and len(books.trials) < spec.trials:
        yield "fewer trials than the budget", RESUME, f"{len(books.trials)} of {spec.trials}"
    asked = {trial.number for trial in books.asked}
    for trial in books.trials:
        if trial.number in asked:
            yield from _asked(trial, books)
        elif books.finished and not trial.state.is_finished():
            yield "trials asked for and never told", RESUME, f"{trial.number} (refused)"
    # A running sweep may have asked for trials, and trained them, since the study was read.
    known = {trial.number for trial in books.trials}
    for number in sorted(books.by_trial.keys() - known) if books.finished else ():
        yield "trials trained that were never asked for", f"restore the study, or {COPIED}", f"{number}"
    yield from books.cases(
        "trainings recorded more than once",
        f"set files that repeat others aside with: attnsweep resume DIR; or {COPIED}",
        "select trial, replicate from trainings group by all having count(*) > 1 order by all",
    )
    yield from _pruned(books)


def _asked(trial: FrozenTrial, books: Books) -> Iterator[Fault]:
    directory, number, state = books.directory, trial.number, trial.state
    ended = books.ended(number)
    wanted = range(n_wanted(directory.spec.replicates, ended.stuck))
    for replicate in sorted(ended.by_replicate.keys() - {*wanted}):
        yield "trainings beyond those that their trial needs", COPIED, f"{number}/{replicate}"
    # Replicates that were added later, or are trained again, do not count as missing.
    due = wanted if books.finished or len(directory.stages) < 2 else range(directory.stages[0])
    retried = directory.retried_of(number)
    n_missing = len({*due} - ended.by_replicate.keys() - (frozenset() if books.finished else retried))
    if state == TrialState.RUNNING:
        if books.finished:
            yield "trials asked for and never told", RESUME, f"{number}"
    elif state not in _TOLD or (state == TrialState.PRUNED and directory.spec.pruner is None):
        fix = "restore the study: another program has written to it"
        yield "trials in a state that attnsweep does not know", fix, f"{number} ({state.name})"
    elif n_missing:
        yield "ended trials without all their trainings", RESUME, f"{number} ({n_missing} of {len(due)} missing)"
    elif (state == TrialState.PRUNED) != ended.is_pruned:
        yield "trials pruned in the study or in the ledger alone", _RESTORE_EITHER, f"{number}"
    # A value that was told stays when trainings are added or repeated.
    elif has_study(directory.spec) and not ended.is_pruned and len(directory.stages) < 2 and not retried:
        told = None if trial.values is None else Told(tuple(trial.values), trial.constraints)
        if told != (follows := ended.told(directory.spec)):
            case = f"{number} ({_in_words(told)}, not {_in_words(follows)})"
            yield "trials whose value in the study is not that of their trainings", _RESTORE_EITHER, case


def _in_words(told: Told | None) -> str:
    if told is None:
        return "None"
    return ", ".join([*map(str, told.values), *(f"{name}: {excess:+g}" for name, excess in told.excess.items())])


def _pruned(books: Books) -> Iterator[Fault]:
    sql = "from trainings where outcome = 'pruned' or pruned_step is not null order by trial, replicate"
    rows = books.connection.execute(f"select trial, replicate, outcome, pruned_step, n_steps {sql}").fetchall()
    decided = {trial.number: trial.user_attrs.get(PRUNED_STEP) for trial in books.asked}
    for trial, replicate, outcome, step, n_steps in rows:
        earliest = decided.get(trial)
        # A trial's other packs may have reached a later step when it was pruned.
        if outcome != PRUNED or step is None or earliest is None or not earliest <= step >= n_steps:
            case = f"{trial}/{replicate} ({outcome} at {step} after {n_steps} steps, decided at {earliest})"
            yield "pruned trainings that are not as the study decided", RESTORE, case


def _trainings(books: Books) -> Iterator[Fault]:
    """Rows whose parameters, seed or id do not follow from the study and the sweep's seed."""
    # In one comparison of the table with what is expected, since there may be millions of rows.
    declared = books.workload.parameters.declared()
    stored = {*names_with(books.connection, "param_")}
    if books.by_trial and (changed := sorted(stored ^ declared.keys())):
        what = "parameters that the workload has added or dropped since the training, so no ids checked"
        yield what, _OLD_VERSION, ", ".join(changed)
        return
    tasks: list[Task] = []
    for trial in books.asked:
        try:
            tasks += books.tasks(trial, books.ended(trial.number).by_replicate)
        except (SpecError, ValueError, KeyError) as error:
            what = "trials with a parameter that is missing, or that the workload now refuses"
            yield what, f"restore the study, or {_OLD_VERSION}", f"{trial.number} ({error})"
    trained = [task.training for task in tasks]
    effective = [training.parameters.effective() for training in trained]
    ids = [training_id(books.workload.name, each.parameters, each.seed) for each in trained]
    expected: dict[str, tuple[str, str, list[Any]]] = {
        "sweep": ("trainings of another sweep", COPIED, [books.directory.sweep] * len(tasks)),
        "seed": ("trainings with another seed than the sweep gives them", RESTORE, [each.seed for each in trained]),
        "training_id": ("trainings whose id is not that of their parameters and seed", RESTORE, ids),
    }
    for name in declared if tasks else ():
        what = f"trainings with another value of {name} than the study has"
        expected[f"param_{name}"] = what, f"{RESTORE}, or the study", [each[name] for each in effective]
    keys = {"trial": [task.trial for task in tasks], "replicate": [task.replicate for task in tasks]}
    books.connection.register("expected", pa.table(keys | {name: values for name, (_, _, values) in expected.items()}))
    both = "from trainings t join expected e using (trial, replicate)"
    differ = [f"t.{identifier(name)} is distinct from e.{identifier(name)}" for name in expected]
    (found,) = books.connection.execute(f"select {', '.join(f'bool_or({each})' for each in differ)} {both}").fetchall()
    for is_found, condition, (what, fix, _) in zip(found, differ, expected.values(), strict=True):
        if is_found:
            yield from books.cases(what, fix, f"select trial, replicate {both} where {condition} order by all")


def _links(books: Books) -> Iterator[Fault]:
    named_in, keys = "(select distinct training_id, trial, replicate from {})", "using (training_id, trial, replicate)"
    for table in ("curves", "heads"):
        sql = f"select trial, replicate from {named_in.format(table)} anti join trainings {keys} order by all"
        yield from books.cases(f"trainings with rows in {table} only", COPIED, sql)
    # Some variants of a workload have no attention heads, and so no rows in `heads`.
    sql = f"from trainings anti join {named_in.format('curves')} {keys} where outcome <> 'failed' order by all"
    yield from books.cases("trainings that did not fail and have no curves", RESTORE, f"select trial, replicate {sql}")


def _logged(books: Books, logged: Logged) -> Iterator[Fault]:
    directory, trials = books.directory, {*books.complete}
    if len(logged.parents) > 1:
        yield from (("runs of the sweep itself instead of one", _DELETE, run) for run in logged.parents)
    if books.finished:
        if not logged.parents:
            yield "sweeps without a run", _SYNC, directory.sweep
        for run, n in logged.parents.items():
            if n != books.n_trainings:
                case = f"{run} ({n or 'none'}, not {books.n_trainings})"
                yield "runs of the sweep with another number of trainings", _SYNC, case
        for trial in sorted(trials - logged.finished) if has_runs_of_trials(directory.spec) else ():
            yield "complete trials without a finished run", _SYNC, f"{trial}"
    runs = Counter(child.trial for child in logged.children)
    for trial in sorted(trial for trial, n in runs.items() if n > 1):
        yield "trials with several runs", _DELETE, f"{trial} ({', '.join(logged.runs_of(trial))})"
    # While a sweep adds replicates or repeats failed trainings, a trial with a run becomes incomplete again.
    is_changing = (len(directory.stages) > 1 or directory.retried) and not books.finished
    may_be_incomplete = {trial.number for trial in books.asked} if is_changing else set()
    for trial in sorted(runs.keys() - trials - may_be_incomplete):
        yield "runs of incomplete trials", _DELETE, f"{trial} ({', '.join(logged.runs_of(trial))})"


def check_results(books: Books) -> list[Check]:
    n_refused, rule = len(books.trials) - len(books.asked), books.directory.spec.replicates
    refused = f", {n_refused} more refused" if n_refused else ""
    n = sum(n_wanted(rule, books.ended(trial.number).stuck) for trial in books.asked)
    wanted = in_one_line({"trainings": books.n_trainings, "wanted": n})
    checks = [
        Check(f"{in_one_line(books.counts)} trials{refused}", grouped(_trials(books))),
        Check(f"{wanted}; parameters, seeds and ids recomputed", grouped(_trainings(books))),
        Check("curves and heads belong to these trainings; only failed ones lack curves", grouped(_links(books))),
    ]
    if (logged := books.logged) is not None:
        runs = f"MLflow: {len(logged.children):,} runs of trials, {len(logged.parents)} of the sweep"
        checks.append(Check(runs, grouped(_logged(books, logged))))
    return checks
