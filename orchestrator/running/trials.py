"""The open trials of a sweep: asked of the study, queued as trainings, told once all their rows are there."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from attnsweep.orchestrator.ledger.trial import complete_among
from attnsweep.orchestrator.running.backlog import Backlog
from attnsweep.orchestrator.running.study import Configuration, Study
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.identity import tasks_of
from attnsweep.search_spaces.objective import objective_value
from attnsweep.search_spaces.replication import n_wanted
from attnsweep.search_spaces.sweep import LossQuantile, StuckRate
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import SpecError

_COLUMNS = ["trial", "replicate", "outcome", "stuck", "eval_loss"]


@dataclass
class _Tally:
    """The trainings of one trial: how many are queued or have ended, and the rows of the latter by replicate."""

    configuration: Configuration
    is_told: bool = False
    n_queued: int = 0
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def judged(self) -> list[dict[str, Any]]:
        """The rows of trainings that did not fail."""
        return [row for row in self.rows.values() if row["outcome"] != "failed"]

    def stuck(self) -> dict[int, bool | None]:
        """Whether each is stuck; `None` where it failed."""
        return {replicate: None if row["outcome"] == "failed" else row["stuck"] for replicate, row in self.rows.items()}

    def value(self, objective: StuckRate | LossQuantile) -> float | None:
        """What the study is told; `None` where all trainings failed."""
        if not self.judged:
            return None
        outcome, stuck, loss = ([row[name] for row in self.judged] for name in ("outcome", "stuck", "eval_loss"))
        return objective_value(objective, outcome, stuck, loss)


class OpenTrials:
    """Decides which trainings a trial still needs, and tells the study how the trial ended.

    Args:
        directory: The sweep.
        workload: Its problem.
        study: Where trials are asked for and told.
        backlog: Where their trainings are queued.

    Attributes:
        n_told: Trials told by this run.
    """

    def __init__(self, directory: SweepDirectory, workload: Workload[Any], study: Study, backlog: Backlog) -> None:
        self.n_told = 0
        self._directory = directory
        self._workload = workload
        self._study = study
        self._backlog = backlog
        self._tallies: dict[int, _Tally] = {}

    def restore(self, rows: pa.Table) -> list[int]:
        """Continues the trials of earlier runs: tells those whose rows are complete, queues the rest.

        A trial that was told and has lost rows, because a damaged file was set aside, is trained again and not told
        again.

        Args:
            rows: All of the ledger's `trainings`.

        Returns:
            The trials that ended here.
        """
        told = {asked.trial for asked in self._study.asked() if asked.is_told}
        settled = told.intersection(complete_among(rows, self._directory.spec.replicates))
        rows_of: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in rows.filter(~pc.field("trial").isin(sorted(settled))).to_pylist():
            rows_of[row["trial"]].append(row)
        ended = []
        for asked in self._study.asked():
            if asked.trial in settled:
                continue
            configuration = self._study.configuration(asked.trial)
            if self._open(configuration, rows_of[asked.trial], is_told=asked.is_told):
                ended.append(asked.trial)
        return ended

    def ask(self) -> None:
        """Asks the study for one trial and queues its trainings."""
        self._open(self._study.ask())

    def count(self, rows: pa.Table) -> list[int]:
        """Counts committed rows of `trainings`; queues further replicates where a trial wants them.

        Returns:
            The trials that ended with these rows.
        """
        trials = set()
        for row in rows.select(_COLUMNS).to_pylist():
            self._tallies[row["trial"]].rows[row["replicate"]] = row
            trials.add(row["trial"])
        return [trial for trial in sorted(trials) if self._queue_or_tell(self._tallies[trial])]

    def _open(
        self, configuration: Configuration, done: Sequence[dict[str, Any]] = (), *, is_told: bool = False
    ) -> bool:
        """Queues a trial's trainings except those whose rows are there; returns whether the trial has ended."""
        tally = _Tally(configuration, is_told, rows={row["replicate"]: row for row in done})
        self._tallies[configuration.trial] = tally
        try:
            return self._queue_or_tell(tally)
        except SpecError as error:
            # The workload refuses this combination of values: the trial's fault, not the sweep's.
            del self._tallies[configuration.trial]
            self._study.refuse(configuration.trial, str(error))
            return False

    def _queue_or_tell(self, tally: _Tally) -> bool:
        """Queues the trainings that a trial wants, given its rows; tells it when it wants no more."""
        wanted = n_wanted(self._directory.spec.replicates, tally.stuck())
        missing = [replicate for replicate in range(tally.n_queued, wanted) if replicate not in tally.rows]
        trial, values = tally.configuration.trial, tally.configuration.values
        if missing:
            self._backlog.add(tasks_of(self._directory, self._workload.parameters, trial, values, missing))
        tally.n_queued = wanted
        if len(tally.rows) < wanted:
            return False
        del self._tallies[trial]
        if not tally.is_told:
            self._study.tell(trial, tally.value(self._directory.spec.objective), len(tally.judged))
            self.n_told += 1
        return True
