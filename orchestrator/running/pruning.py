"""Pruning: ends the trainings of a pack that waits at a probe, if their trial has fallen behind."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from attnsweep.orchestrator.ledger.trial import EndedTrainings, Ending
from attnsweep.orchestrator.running.study import Study
from attnsweep.orchestrator.training.messages import PackOrder, Probed, Trained
from attnsweep.search_spaces.replication import n_wanted
from attnsweep.search_spaces.sweep import Sweep


class Pruning:
    """Reports the values of trials to the study's pruner, and stops trainings as the pruner decides.

    The value of a trial at a step is the objective over all of its trainings at this step; a training that has ended
    keeps its last value for later steps. A trial is decided only while all its trainings are under way, so that all of
    them are pruned or none. The trainings in the pack that reported last end at this very step, those in other packs at
    their next probe.

    A decision is stored durably in the study before anything that depends on it, so it holds when a pack is trained
    again. A step for which the study has a value is not decided again.

    Args:
        spec: The sweep. Without a pruner nothing is done.
        study: The sweep's study.
    """

    def __init__(self, spec: Sweep, study: Study) -> None:
        self._is_on = spec.pruner is not None
        self._objective, self._n_wanted = spec.objectives[0], n_wanted(spec.replicates, {})
        self._study = study
        self._reached: dict[int, dict[int, dict[int, Ending]]] = defaultdict(lambda: defaultdict(dict))
        self._closed: set[int] = set()

    def begin(self, rows: pa.Table) -> None:
        """Continues from an earlier run. Trials that have ended in the study, or have rows, are not pruned any more.

        Args:
            rows: All rows of the ledger's `trainings`.
        """
        if self._is_on:
            self.close(asked.trial for asked in self._study.asked() if asked.is_told)
            self.close(rows["trial"].unique().to_pylist())

    def prepared(self, order: PackOrder) -> PackOrder:
        """Returns the pack's order for a trainer with the pruner's instructions: wait at probes, and end pruned trials
        at their step."""
        if not self._is_on:
            return order
        decided = self._study.pruned
        tasks = [replace(task, pruned_step=decided.get(task.trial)) for task in order.tasks]
        return replace(order, tasks=tasks, waits=True)

    def answer(self, order: PackOrder, probed: Probed) -> list[int]:
        """Returns the positions in the pack of the trainings that must end at this probe or should have ended
        before."""
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

    def lane_steps(self, order: PackOrder, trained: Trained) -> int:
        """Returns the work of a pack in training steps, for choosing pack sizes. Pruned trainings count with all their
        steps."""
        if not self._is_on:
            return trained.lane_steps
        return sum(task.training.parameters.n_steps for task in order.tasks)

    def close(self, trials: Iterable[int]) -> None:
        """Excludes trials from further pruning, because some of their trainings have ended for good."""
        for trial in trials:
            self._closed.add(trial)
            self._reached.pop(trial, None)

    def _report(self, trial: int, step: int, reached: Mapping[int, Ending], *, is_running: bool) -> None:
        """Reports a trial's value at a step to the study, once all trainings of the trial have reached this step."""
        if trial in self._closed or trial in self._study.pruned:
            return
        if len(reached) < self._n_wanted:
            # The other trainings of the trial are in other packs, so the values that these packs reported at this step
            # are added.
            together = self._reached[trial][step]
            together.update(reached)
            reached = together
        value = EndedTrainings(dict(reached)).value(self._objective) if len(reached) == self._n_wanted else None
        if value is not None and self._study.report(trial, step, value) and is_running:
            self._study.decide(trial, step)
