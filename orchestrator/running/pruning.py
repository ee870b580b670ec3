"""Pruning: which trainings of a pack that waits at a probe end there, because their trial has fallen behind."""

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
    """Reports the values of trials to the study's pruner, and says which trainings its decisions end.

    The value of a trial at a step is the objective over its trainings once all of them have reached it: measured there,
    or ended before, which counts for all later steps. A trial is decided only while all its trainings are under way, so
    that all of them are pruned or none. Those in the pack that reported last end at this very step, those in other
    packs at their next probe.

    A decision is in the study, and durable, before anything that depends on it. So it stays where a pack is trained
    again. A step that the study knows a value of is not decided again.

    Args:
        spec: The sweep; without a pruner nothing is done.
        study: Its study.
    """

    def __init__(self, spec: Sweep, study: Study) -> None:
        self._is_on = spec.pruner is not None
        self._objective, self._n_wanted = spec.objectives[0], n_wanted(spec.replicates, {})
        self._study = study
        self._reached: dict[int, dict[int, dict[int, Ending]]] = defaultdict(lambda: defaultdict(dict))
        self._closed: set[int] = set()

    def begin(self, rows: pa.Table) -> None:
        """Continues from an earlier run: trials that are told, or have rows, are not decided.

        Args:
            rows: All of the ledger's `trainings`.
        """
        if self._is_on:
            self.close(asked.trial for asked in self._study.asked() if asked.is_told)
            self.close(rows["trial"].unique().to_pylist())

    def prepared(self, order: PackOrder) -> PackOrder:
        """The order as a trainer gets it: it waits at probes, and trains nothing beyond what is decided."""
        if not self._is_on:
            return order
        decided = self._study.pruned
        tasks = [replace(task, pruned_step=decided.get(task.trial)) for task in order.tasks]
        return replace(order, tasks=tasks, waits=True)

    def answer(self, order: PackOrder, probed: Probed) -> list[int]:
        """The positions in the pack of the trainings that are to have ended by this probe."""
        lanes: dict[int, list[int]] = defaultdict(list)
        for lane, task in enumerate(order.tasks):
            lanes[task.trial].append(lane)
        running, pruned = set(probed.running), []
        for trial, its in lanes.items():
            reached = {order.tasks[lane].replicate: Ending(*probed.reached[lane]) for lane in its}
            self._report(trial, probed.step, reached, is_running=not running.isdisjoint(its))
            if self._study.pruned.get(trial, probed.step + 1) <= probed.step:
                pruned += its
                self._reached.pop(trial, None)
        if not running:
            self.close(lanes)
        return pruned

    def lane_steps(self, order: PackOrder, trained: Trained) -> int:
        """The work of a pack, for the choice of pack sizes: what was pruned counts as if trained to its end."""
        if not self._is_on:
            return trained.lane_steps
        return sum(task.training.parameters.n_steps for task in order.tasks)

    def close(self, trials: Iterable[int]) -> None:
        """From here on these trials are not decided: some of their trainings have ended for good."""
        for trial in trials:
            self._closed.add(trial)
            self._reached.pop(trial, None)

    def _report(self, trial: int, step: int, reached: Mapping[int, Ending], *, is_running: bool) -> None:
        """Tells the study the value at a step, if all trainings have reached it."""
        if trial in self._closed or trial in self._study.pruned:
            return
        if len(reached) < self._n_wanted:
            # The others are in other packs.
            together = self._reached[trial][step]
            together.update(reached)
            reached = together
        value = EndedTrainings(dict(reached)).value(self._objective) if len(reached) == self._n_wanted else None
        if value is not None and self._study.report(trial, step, value) and is_running:
            self._study.decide(trial, step)
