"""The open trials of a sweep, from drawing to telling, which follows the commit of their rows."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from attnsweep.orchestrator.ledger.trial import EndedTrainings, Ending, complete_among, ended_in_turn, ended_trainings
from attnsweep.orchestrator.running.plan import Backlog
from attnsweep.orchestrator.running.study import Study
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.messages import PackOrder, Probed
from attnsweep.orchestrator.training.tasks import tasks_of
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.measured import objective_value, read_constraints
from attnsweep.search_spaces.replication import n_wanted
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import SpecError


@dataclass
class _Tally:
    """One open trial; `n_queued` counts replicates that were queued in this run or have ended before."""

    trial: int
    values: Mapping[str, Scalar]
    ended: EndedTrainings = field(default_factory=EndedTrainings)
    is_told: bool = False
    n_queued: int = 0


class EarlyEnd:
    """Decides, in whatever order trials end, when to draw no more; `reason` says why, and is empty before."""

    def __init__(self, spec: Sweep) -> None:
        self.reason = ""
        self._spec, self._targets = spec, read_constraints(spec.targets, "target")
        self._best, self._n_later = (math.inf, 0), 0
        self._trials: set[int] = set()

    def count(self, trial: int, ended: EndedTrainings) -> None:
        if ended.is_pruned or (told := ended.told(self._spec)) is None:
            return
        for target in self._targets:
            if target.excess(objective_value(target.measured, *zip(*ended.judged, strict=True))) <= 0:
                self.reason = f"trial {trial} meets the target {target.text}"
        if self._spec.patience is None:
            return
        is_met = all(excess <= 0 for excess in told.excess.values())
        sign = 1 if self._spec.objectives[0].direction == "minimize" else -1
        best = min(self._best, (sign * told.values[0] if is_met else math.inf, trial))
        self._trials.add(trial)
        self._n_later += trial > best[1]
        if best != self._best:
            self._best, self._n_later = best, sum(other > trial for other in self._trials)
        if self._n_later >= self._spec.patience:
            self.reason = f"none of {self._n_later} later trials is better than trial {best[1]}"


class OpenTrials:
    """Decides which trainings each trial still needs, and tells the study the values of complete trials."""

    def __init__(self, directory: SweepDirectory, workload: Workload[Any], study: Study, backlog: Backlog) -> None:
        self._directory = directory
        self._workload = workload
        self._study = study
        self._backlog = backlog
        self._tallies: dict[int, _Tally] = {}
        self.early_end = EarlyEnd(directory.spec)

    def restore(self, rows: pa.Table, in_checkpoints: Collection[int] = ()) -> list[int]:
        """Continues the trials of earlier runs, and returns those that it ends. A value that the study has stays."""
        complete = complete_among(rows, self._directory.spec.replicates)
        settled = {trial for trial in complete if self._study.is_told(trial)}
        if self._directory.spec.ends_early:
            for trial, trainings in ended_in_turn(rows.filter(pc.field("trial").isin(sorted(settled)))):
                self.early_end.count(trial, trainings)
        ended_of = ended_trainings(rows.filter(~pc.field("trial").isin(sorted(settled))))
        retried = (trial for by_trial in self._directory.retried for trial in by_trial)
        known = {*rows["trial"].unique().to_pylist(), *in_checkpoints, *retried}
        ended = []
        for trial in self._study.restored(known, self._workload.parameters):
            if trial not in settled:
                trainings, is_told = ended_of.get(trial, EndedTrainings()), self._study.is_told(trial)
                if self._open(_Tally(trial, self._study.values(trial), trainings, is_told)):
                    ended.append(trial)
        return ended

    @property
    def still_open(self) -> Collection[int]:
        return self._tallies.keys()

    def ask(self) -> None:
        trial = self._study.ask()
        self._open(_Tally(trial, self._study.values(trial)))

    def count(self, rows: pa.Table) -> list[int]:
        """Counts committed rows and queues what their trials still need. Returns the trials that have ended."""
        by_trial = ended_trainings(rows)
        for trial, ended in by_trial.items():
            self._tallies[trial].ended.by_replicate.update(ended.by_replicate)
        return [trial for trial in sorted(by_trial) if self._queue_or_tell(self._tallies[trial])]

    def _open(self, tally: _Tally) -> bool:
        self._tallies[tally.trial] = tally
        try:
            return self._queue_or_tell(tally)
        except SpecError as error:
            del self._tallies[tally.trial]
            self._study.refuse(tally.trial, str(error))
            return False

    def _queue_or_tell(self, tally: _Tally) -> bool:
        wanted = n_wanted(self._directory.spec.replicates, tally.ended.stuck)
        missing = [
            replicate for replicate in range(tally.n_queued, wanted) if replicate not in tally.ended.by_replicate
        ]
        trial, values = tally.trial, tally.values
        if missing:
            self._directory.spec.completed(values)
            self._backlog.add(tasks_of(self._directory, self._workload.parameters, trial, values, missing))
        tally.n_queued = wanted
        if len(tally.ended.by_replicate) < wanted:
            return False
        del self._tallies[trial]
        if not tally.is_told:
            if tally.ended.is_pruned:
                self._study.tell_pruned(trial)
            else:
                self._study.tell(trial, tally.ended.told(self._directory.spec), len(tally.ended.judged))
        self.early_end.count(trial, tally.ended)
        return True


class Pruning:
    """Reports values during training to the study's pruner, and ends the trainings of trials that it prunes.

    A trial's value at a step is the objective over all its trainings at this step; one that has ended keeps its last
    value. The pruner decides only until a pack of the trial has ended, so that all trainings are pruned or none: in the
    pack that reported last at this very step, in others at their next probe. A decision is durable before anything that
    depends on it, and a step is decided once.
    """

    def __init__(self, spec: Sweep, study: Study) -> None:
        self._is_on = spec.pruner is not None
        self._objective, self._n_wanted = spec.objectives[0], n_wanted(spec.replicates, {})
        self._study = study
        # By trial, step and replicate, of trials whose trainings are in several packs.
        self._reached: dict[int, dict[int, dict[int, Ending]]] = defaultdict(lambda: defaultdict(dict))
        self._closed: set[int] = set()

    def prepared(self, order: PackOrder) -> PackOrder:
        """With a pruner, an order names the trials that have been pruned, and waits at each probe."""
        if not self._is_on:
            return order
        decided = self._study.pruned
        tasks = [replace(task, pruned_step=decided.get(task.trial)) for task in order.tasks]
        return replace(order, tasks=tasks, waits=True)

    def answer(self, order: PackOrder, probed: Probed) -> list[int]:
        """Reports a probe to the pruner. Returns the lanes that must end because their trial is pruned."""
        lanes: dict[int, list[int]] = defaultdict(list)
        for lane, task in enumerate(order.tasks):
            lanes[task.trial].append(lane)
        running, pruned = set(probed.running), []
        for trial, positions in lanes.items():
            reached = {order.tasks[lane].replicate: Ending(*probed.reached[lane]) for lane in positions}
            self._report(trial, probed.step, reached, is_running=not running.isdisjoint(positions))
            if self._study.pruned.get(trial, probed.step + 1) <= probed.step:
                pruned += positions
                self._reached.pop(trial, None)
        if not running:
            self.close(lanes)
        return pruned

    def close(self, trials: Iterable[int]) -> None:
        """From now on these trials are not pruned: a pack of theirs has ended."""
        for trial in trials:
            self._closed.add(trial)
            self._reached.pop(trial, None)

    def _report(self, trial: int, step: int, reached: Mapping[int, Ending], *, is_running: bool) -> None:
        if trial in self._closed or self._study.pruned.get(trial, step) < step or self._study.is_told(trial):
            return
        if len(reached) < self._n_wanted:
            # The trial's other trainings may run in other packs.
            so_far = self._reached[trial][step]
            so_far.update(reached)
            reached = so_far
        value = EndedTrainings(dict(reached)).value(self._objective) if len(reached) == self._n_wanted else None
        if value is not None:
            self._study.report(trial, step, value, may_prune=is_running)
