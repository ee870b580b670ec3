"""The rules of a trial: which of its trainings have ended, which are judged, and which value the study is told.

The sweep loop, the audit, the projection to MLflow and the analyses use them.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from attnsweep.search_spaces.measured import Measured
from attnsweep.search_spaces.objective import objective_value
from attnsweep.search_spaces.replication import Ended, Sequential, is_complete
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.vocabulary import PRUNED, UNJUDGED_OUTCOMES


class Ending(NamedTuple):
    """What the rules need of one ended training. `eval_loss` is `None` if it was not finite."""

    outcome: str
    stuck: bool
    eval_loss: float | None
    onset_step: int | None = None

    @property
    def is_judged(self) -> bool:
        """The same condition as `ledger.sql.IS_JUDGED`."""
        return self.outcome not in UNJUDGED_OUTCOMES


class Told(NamedTuple):
    """What the study is told of a trial.

    Attributes:
        values: Of each objective.
        excess: How far it is beyond each constraint, by the constraint's text; 0 or less where that is met.
    """

    values: tuple[float, ...]
    excess: Mapping[str, float]

    @property
    def is_feasible(self) -> bool:
        """Whether it meets all constraints."""
        return all(each <= 0 for each in self.excess.values())


@dataclass(frozen=True, slots=True)
class EndedTrainings:
    """The ended trainings of one trial, by replicate. A replicate recorded twice counts once."""

    by_replicate: dict[int, Ending] = field(default_factory=dict)

    @property
    def judged(self) -> list[Ending]:
        """The trainings that neither failed nor were pruned."""
        return [ending for ending in self.by_replicate.values() if ending.is_judged]

    @property
    def is_pruned(self) -> bool:
        """Whether the trial was pruned: then all its trainings were, but those that failed."""
        return any(ending.outcome == PRUNED for ending in self.by_replicate.values())

    @property
    def stuck(self) -> Ended:
        """Whether each training is stuck, for `n_wanted`; `None` if it is not judged."""
        return {number: ending.stuck if ending.is_judged else None for number, ending in self.by_replicate.items()}

    def first(self, n: int) -> "EndedTrainings":
        """Those with the first `n` numbers."""
        return EndedTrainings({number: ending for number, ending in self.by_replicate.items() if number < n})

    def without(self, replicates: Collection[int]) -> "EndedTrainings":
        """Those with other numbers."""
        return EndedTrainings({number: each for number, each in self.by_replicate.items() if number not in replicates})

    def told(self, spec: Sweep) -> Told | None:
        """What the study is told; `None` if no training is judged."""
        judged = self.judged
        if not judged:
            return None
        rows = list(zip(*judged, strict=True))
        values = tuple(objective_value(each, *rows) for each in spec.objectives)
        return Told(values, {each.text: each.excess(objective_value(each.measured, *rows)) for each in spec.bounds})

    def value(self, objective: Measured) -> float | None:
        """What is measured of the trial; `None` if no training is judged."""
        judged = self.judged
        return objective_value(objective, *zip(*judged, strict=True)) if judged else None


JUDGING_COLUMNS = ("trial", "replicate", *Ending._fields)
"""The columns of `trainings` that decide about a trial."""
_ROWS_AT_ONCE = 50_000


def ended_trainings(rows: pa.Table) -> dict[int, EndedTrainings]:
    """The ended trainings of each trial among these rows of the table `trainings`."""
    trials: dict[int, EndedTrainings] = defaultdict(EndedTrainings)
    columns = (rows[name].to_pylist() for name in JUDGING_COLUMNS)
    for trial, replicate, *ending in zip(*columns, strict=True):
        trials[trial].by_replicate[replicate] = Ending(*ending)
    return dict(trials)


def ended_in_turn(rows: pa.Table) -> Iterator[tuple[int, EndedTrainings]]:
    """The ended trainings of each trial among these rows, by the trial's number.

    Some trials at a time: those of a million rows at once take a gigabyte.
    """
    rows = rows.sort_by("trial")
    ends = [*(np.flatnonzero(np.diff(rows["trial"].to_numpy())) + 1).tolist(), rows.num_rows]
    start = 0
    while start < rows.num_rows:
        end = ends[min(bisect_left(ends, start + _ROWS_AT_ONCE), len(ends) - 1)]
        yield from ended_trainings(rows.slice(start, end - start)).items()
        start = end


def objective_values(trials: Mapping[int, EndedTrainings], objective: Measured) -> dict[int, float]:
    """The value of each trial that has one."""
    values = {trial: ended.value(objective) for trial, ended in trials.items()}
    return {trial: value for trial, value in values.items() if value is not None}


def judging_columns(connection: duckdb.DuckDBPyConnection, condition: str = "true") -> pa.Table:
    """The columns of `trainings` that the other functions need.

    Args:
        connection: From `Ledger.connect`.
        condition: Of which rows.
    """
    return connection.sql(f"select {', '.join(JUDGING_COLUMNS)} from trainings where {condition}").to_arrow_table()


def complete_trials(connection: duckdb.DuckDBPyConnection, rule: int | Sequential) -> list[int]:
    """The trials of a ledger that have all the trainings they want, in order.

    Args:
        connection: From `Ledger.connect`.
        rule: The sweep's `replicates`.
    """
    return complete_among(judging_columns(connection), rule)


def complete_among(rows: pa.Table, rule: int | Sequential) -> list[int]:
    """The trials among these rows of the table `trainings` that have all the trainings they want, in order."""
    if isinstance(rule, int):
        # Outcomes do not matter here, and Arrow counts half a million rows faster than Python reads them.
        counts = rows.group_by("trial").aggregate([("replicate", "count_distinct")])
        return sorted(counts.filter(pc.field("replicate_count_distinct") == rule)["trial"].to_pylist())
    return sorted(trial for trial, ended in ended_trainings(rows).items() if is_complete(rule, ended.stuck))
