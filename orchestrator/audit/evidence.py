"""The two records that an audit compares: the study's trials and the ledger's rows."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from optuna.trial import FrozenTrial

from attnsweep.orchestrator.ledger.trial import EndedTrainings, ended_trainings
from attnsweep.orchestrator.running.study import refusal
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.content import TrialValues
from attnsweep.workloads.engine.contract import Workload

KEYS = ("trial", "replicate")


@dataclass(frozen=True, kw_only=True)
class Books:
    """The study and the ledger of one sweep, which the checks of an audit compare.

    Attributes:
        directory: The sweep's record.
        workload: The problem that the sweep trains.
        finished: Whether the sweep's budget is spent.
        trials: The study's trials, read before the rows, so every trial that has ended in the study has all its rows.
        known: The numbers of the study's trials, read after the rows, so every row belongs to one of these.
        rows: The rows of `trainings` without the column of errors, sorted by trial and replicate.
        values: The values that MLflow should have for each trial, computed from these rows.
    """

    directory: SweepDirectory
    workload: Workload[Any]
    finished: bool
    trials: Sequence[FrozenTrial]
    known: frozenset[int]
    rows: pa.Table
    values: Mapping[int, TrialValues]

    @cached_property
    def asked(self) -> list[FrozenTrial]:
        """The trials that should be trained: all except those that the workload refuses."""
        return [trial for trial in self.trials if refusal(trial) is None]

    @cached_property
    def places(self) -> Mapping[int, range]:
        """The range of each trial's rows, as indices in `rows`, by trial."""
        trials, first = np.unique(self.rows["trial"].to_numpy(), return_index=True)
        edges = itertools.pairwise([*first.tolist(), self.rows.num_rows])
        return {trial: range(*place) for trial, place in zip(trials.tolist(), edges, strict=True)}

    @cached_property
    def by_trial(self) -> Mapping[int, EndedTrainings]:
        """The ended trainings of each trial, by trial; trials without any are left out."""
        return ended_trainings(self.rows)

    def ended(self, trial: int) -> EndedTrainings:
        return self.by_trial.get(trial, EndedTrainings())

    def names(self, is_chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> list[str]:
        """Returns the names `TRIAL/REPLICATE` of the given rows."""
        chosen = self.rows.select(KEYS).filter(pa.array(is_chosen))
        return [f"{row['trial']}/{row['replicate']}" for row in chosen.to_pylist()]
