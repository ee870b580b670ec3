"""The open trials of a sweep: drawn, queued as trainings, and reported to the study when their rows are in the
ledger."""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from attnsweep.orchestrator.ledger.trial import EndedTrainings, complete_among, ended_trainings
from attnsweep.orchestrator.running.plan import Backlog
from attnsweep.orchestrator.running.study import Configuration, Study
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.tasks import tasks_of
from attnsweep.search_spaces.replication import n_wanted
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import SpecError


@dataclass
class _Tally:
    """The trainings of one trial: those that have ended, and the number queued so far."""

    configuration: Configuration
    ended: EndedTrainings = field(default_factory=EndedTrainings)
    is_told: bool = False
    n_queued: int = 0


class OpenTrials:
    """Decides which trainings a trial still needs, and reports the result of each complete trial to the study.

    Args:
        directory: The sweep.
        workload: The problem that the sweep trains.
        study: Draws trials and records their values.
        backlog: Queues the trials' trainings.

    Attributes:
        n_told: Number of trials whose values this run has reported to the study.
    """

    def __init__(self, directory: SweepDirectory, workload: Workload[Any], study: Study, backlog: Backlog) -> None:
        self.n_told = 0
        self._directory = directory
        self._workload = workload
        self._study = study
        self._backlog = backlog
        self._tallies: dict[int, _Tally] = {}

    def restore(self, rows: pa.Table) -> list[int]:
        """Continues the trials of earlier runs: reports trials whose rows are complete, and queues the missing
        trainings of all others.

        A trial that lost rows, because a damaged file was set aside, is trained again; its value in the study stays.

        Args:
            rows: All rows of the ledger's `trainings`.

        Returns:
            The trials that have ended.
        """
        told = {asked.trial for asked in self._study.asked() if asked.is_told}
        settled = told.intersection(complete_among(rows, self._directory.spec.replicates))
        ended_of = ended_trainings(rows.filter(~pc.field("trial").isin(sorted(settled))))
        ended = []
        for asked in self._study.asked():
            if asked.trial in settled:
                continue
            configuration = self._study.configuration(asked.trial)
            tally = _Tally(configuration, ended_of.get(asked.trial, EndedTrainings()), asked.is_told)
            if self._open(tally):
                ended.append(asked.trial)
        return ended

    def ask(self, batch: int) -> None:
        """Draws one trial from the study, as one of a batch of `batch` trials, and queues its trainings."""
        self._open(_Tally(self._study.ask(batch)))

    def count(self, rows: pa.Table) -> list[int]:
        """Counts newly committed rows of `trainings`, and queues further replicates for trials that need them.

        Returns:
            The trials that have ended with these rows.
        """
        now_ended = ended_trainings(rows)
        for trial, ended in now_ended.items():
            self._tallies[trial].ended.by_replicate.update(ended.by_replicate)
        return [trial for trial in sorted(now_ended) if self._queue_or_tell(self._tallies[trial])]

    def _open(self, tally: _Tally) -> bool:
        """Queues those trainings of a trial that have not ended. Returns whether no training is missing, so that the
        trial has ended."""
        trial = tally.configuration.trial
        self._tallies[trial] = tally
        try:
            return self._queue_or_tell(tally)
        except SpecError as error:
            # The workload refuses this combination of values, so the trial is refused and the sweep continues.
            del self._tallies[trial]
            self._study.refuse(trial, str(error))
            return False

    def _queue_or_tell(self, tally: _Tally) -> bool:
        """Queues the trainings that a trial still needs. If it needs none, reports the trial's value and returns
        `True`."""
        wanted = n_wanted(self._directory.spec.replicates, tally.ended.stuck)
        missing = [
            replicate for replicate in range(tally.n_queued, wanted) if replicate not in tally.ended.by_replicate
        ]
        trial, values = tally.configuration.trial, tally.configuration.values
        if missing:
            self._backlog.add(tasks_of(self._directory, self._workload.parameters, trial, values, missing))
        tally.n_queued = wanted
        if len(tally.ended.by_replicate) < wanted:
            return False
        del self._tallies[trial]
        if not tally.is_told:
            self._tell(trial, tally.ended)
            self.n_told += 1
        return True

    def _tell(self, trial: int, ended: EndedTrainings) -> None:
        if ended.is_pruned:
            self._study.tell_pruned(trial)
        else:
            self._study.tell(trial, ended.told(self._directory.spec), len(ended.judged))
