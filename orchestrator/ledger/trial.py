"""When a trial is complete, and which value its judged trainings give it: those that neither failed nor were pruned."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from attnsweep.search_spaces.measured import Measured, objective_value
from attnsweep.search_spaces.replication import Ended, Sequential, is_complete
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.vocabulary import PRUNED, UNJUDGED_OUTCOMES


class Ending(NamedTuple):
    outcome: str
    stuck: bool
    eval_loss: float | None
    onset_step: int | None = None

    @property
    def is_judged(self) -> bool:
        """As the SQL condition `ledger.views.IS_JUDGED`."""
        return self.outcome not in UNJUDGED_OUTCOMES


class Told(NamedTuple):
    """What the study is told of a trial. `excess`: by how much it violates each constraint, at most 0 if it is met."""

    values: tuple[float, ...]
    excess: Mapping[str, float]

    @property
    def is_feasible(self) -> bool:
        return all(excess <= 0 for excess in self.excess.values())


@dataclass(frozen=True, slots=True)
class EndedTrainings:
    by_replicate: dict[int, Ending] = field(default_factory=dict)

    @property
    def judged(self) -> list[Ending]:
        return [ending for ending in self.by_replicate.values() if ending.is_judged]

    @property
    def is_pruned(self) -> bool:
        """One pruned training tells: a pruner ends all trainings of its trial, except those that failed."""
        return any(ending.outcome == PRUNED for ending in self.by_replicate.values())

    @property
    def stuck(self) -> Ended:
        """By replicate; `None` for a training that failed or was pruned."""
        return {number: ending.stuck if ending.is_judged else None for number, ending in self.by_replicate.items()}

    def told(self, spec: Sweep) -> Told | None:
        """`None` without a judged training."""
        judged = self.judged
        if not judged:
            return None
        rows = list(zip(*judged, strict=True))
        values = tuple(objective_value(objective, *rows) for objective in spec.objectives)
        return Told(values, {bound.text: bound.excess(objective_value(bound.measured, *rows)) for bound in spec.bounds})

    def value(self, objective: Measured) -> float | None:
        """`None` without a judged training."""
        judged = self.judged
        return objective_value(objective, *zip(*judged, strict=True)) if judged else None


JUDGING_COLUMNS = ("trial", "replicate", *Ending._fields)
"""Of `trainings`: they decide whether a trial is complete, and its value."""
_ROWS_AT_ONCE = 50_000


def ended_trainings(rows: pa.Table) -> dict[int, EndedTrainings]:
    trials: dict[int, EndedTrainings] = defaultdict(EndedTrainings)
    columns = (rows[name].to_pylist() for name in JUDGING_COLUMNS)
    for trial, replicate, *ending in zip(*columns, strict=True):
        trials[trial].by_replicate[replicate] = Ending(*ending)
    return dict(trials)


def ended_in_turn(rows: pa.Table) -> Iterator[tuple[int, EndedTrainings]]:
    """As `ended_trainings`, trial after trial in order, with `_ROWS_AT_ONCE` rows in Python at a time."""
    rows = rows.sort_by("trial")
    ends = [*(np.flatnonzero(np.diff(rows["trial"].to_numpy())) + 1).tolist(), rows.num_rows]
    start = 0
    while start < rows.num_rows:
        end = ends[min(bisect_left(ends, start + _ROWS_AT_ONCE), len(ends) - 1)]
        yield from ended_trainings(rows.slice(start, end - start)).items()
        start = end


def judging_columns(connection: duckdb.DuckDBPyConnection, condition: str = "true") -> pa.Table:
    """`condition`: SQL that selects the rows."""
    return connection.sql(f"select {', '.join(JUDGING_COLUMNS)} from trainings where {condition}").to_arrow_table()


def complete_trials(connection: duckdb.DuckDBPyConnection, rule: int | Sequential) -> list[int]:
    """Their numbers, in order."""
    return complete_among(judging_columns(connection), rule)


def complete_among(rows: pa.Table, rule: int | Sequential) -> list[int]:
    """As `complete_trials`, from rows of `trainings`."""
    if isinstance(rule, int):
        # Outcomes do not matter here, and Arrow counts half a million rows faster than Python reads them.
        counts = rows.group_by("trial").aggregate([("replicate", "count_distinct")])
        return sorted(counts.filter(pc.field("replicate_count_distinct") == rule)["trial"].to_pylist())
    return sorted(trial for trial, ended in ended_trainings(rows).items() if is_complete(rule, ended.stuck))
