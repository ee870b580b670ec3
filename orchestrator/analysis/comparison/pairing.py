"""Compares two sweeps: on pairs of the same configuration and seed if there are enough, else on all trainings."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.comparison.comparison import GroupDifference, SweepComparison
from attnsweep.orchestrator.analysis.comparison.difference import (
    RateDifference,
    paired_differences,
    unpaired_difference,
)
from attnsweep.orchestrator.analysis.labels import check_known
from attnsweep.orchestrator.analysis.machines import are_several, environments_in, types_in_words
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.analysis.rates.ending import Ending, read_ending
from attnsweep.orchestrator.analysis.rates.groups import Crossing, Group, groups_by, names_of
from attnsweep.orchestrator.analysis.rates.interaction import InteractionTest, interaction_test
from attnsweep.orchestrator.analysis.rates.intervals import (
    pooling,
    trials_count_once,
    weights_of_trainings,
    weights_of_trials,
)
from attnsweep.orchestrator.ledger.sql import IS_JUDGED
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError

_ENOUGH_PAIRS = 0.5
"""The sweeps are compared on pairs if at least this share of the smaller sweep is paired."""

Configuration: TypeAlias = tuple[Scalar, ...]


@dataclass(frozen=True, eq=False, slots=True)
class _Ends:
    """How R trainings ended, as columns of shape (R,). The column `ended` is true for the outcome whose rate is
    compared."""

    trial: NDArray[np.int64]
    outcome: NDArray[np.object_]
    stuck: NDArray[np.bool_]
    ended: NDArray[np.bool_]

    def at(self, rows: NDArray[Any]) -> "_Ends":
        return _Ends(self.trial[rows], self.outcome[rows], self.stuck[rows], self.ended[rows])

    def inside(self, trials: Collection[int]) -> NDArray[np.bool_]:
        """Returns a mask (R,) of the trainings that belong to the given trials."""
        return np.isin(self.trial, list(trials))

    def counts(self, has: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Counts each trial's trainings, all and those for which `has` (R,) is true; returns (n_trials, 2)."""
        place = np.unique(self.trial, return_inverse=True)[1]
        return np.stack([np.bincount(place), np.bincount(place, has).astype(np.int64)], axis=1)


@dataclass(frozen=True, eq=False, slots=True)
class _Trainings:
    """The trainings of one sweep that did not fail, sorted by trial and replicate."""

    ends: _Ends
    seed: Sequence[int]
    parameters: Mapping[str, Sequence[Scalar]]


@dataclass(frozen=True, eq=False, slots=True)
class _Compared:
    """The trainings of the sweeps A and B that are compared with each other.

    Attributes:
        specs: The specs of the sweeps.
        a, b: How the trainings of A and of B ended. A pair has the same row in both, and there the trial number of A.
        configuration: (R,) the number of each pair's configuration; `None` without pairs.
    """

    specs: Sequence[Sweep]
    a: _Ends
    b: _Ends
    configuration: NDArray[np.int64] | None

    def differences(self, has: Sequence[tuple[NDArray[np.bool_], NDArray[np.bool_]]]) -> tuple[RateDifference, ...]:
        """Computes the difference between sweeps A and B in several rates. Each rate is given by a mask of A's
        trainings and one of B's."""
        pool = pooling(*self.specs)
        if self.configuration is None:
            return tuple(unpaired_difference(self.a.counts(in_a), self.b.counts(in_b), pool) for in_a, in_b in has)
        cluster = np.unique(self.configuration, return_inverse=True)[1]
        weight = weights_of_trainings(cluster, once_per_trial=trials_count_once(*self.specs))
        before, after = (np.array(masks, dtype=np.bool_) for masks in zip(*has, strict=True))
        return paired_differences(before, after, cluster, weight, pool)

    def difference_in(self, group: Group) -> GroupDifference:
        """Computes the difference between both sweeps' rates, restricted to the trials of one group."""
        in_a, in_b = self.a.inside(group.trials), self.b.inside(group.trials)
        configuration = None if self.configuration is None else self.configuration[in_a]
        inside = replace(self, a=self.a.at(in_a), b=self.b.at(in_b), configuration=configuration)
        (difference,) = inside.differences([(inside.a.ended, inside.b.ended)])
        n = len(inside.a.trial) + (len(inside.b.trial) if configuration is None else 0)
        return GroupDifference(group.label, n, difference)

    def change_by(self, groups: Sequence[Group]) -> InteractionTest:
        """Tests whether the change of the rate from sweep A to B differs between groups. The clusters are
        configurations or, without pairs, trials."""
        place = {trial: at for at, group in enumerate(groups) for trial in group.trials}
        rows = []
        for sweep, ends in enumerate((self.a, self.b)):
            clusters = ends.trial if self.configuration is None else self.configuration
            rows += [
                (sweep, place[trial], cluster) for trial, cluster in zip(ends.trial.tolist(), clusters, strict=True)
            ]
        if not rows:
            return InteractionTest(0.0, 0, None, "nothing to compare")
        cells, cell = np.unique(np.array(rows), axis=0, return_inverse=True)
        n = np.bincount(cell.ravel()).astype(np.float64)
        k = np.bincount(cell.ravel(), np.concatenate([self.a.ended, self.b.ended]))
        weight = weights_of_trials(n, *self.specs)
        sweeps, bins, clusters = cells.T
        return interaction_test(weight, k / n * weight, sweeps, bins, np.unique(clusters, return_inverse=True)[1])


def compare_sweeps(
    a: SweepData,
    b: SweepData,
    *,
    by: str | Sequence[str] | None = None,
    outcome: str = "stuck",
    detail: str | None = None,
) -> SweepComparison:
    """Compares two opened sweeps, as `attnsweep.orchestrator.analysis.compare` describes."""
    workloads = [data.directories[0].spec.workload for data in (a, b)]
    if workloads[0] != workloads[1]:
        raise UserError(
            "B",
            given=f"a sweep of the workload {workloads[1]}",
            expected=f"a sweep of A's workload, {workloads[0]}",
            fix="give two sweeps of the same workload",
        )
    ending = _ending(a, b, outcome, detail)
    before = _read(a, ending)
    # The trials of B are renumbered to follow those of A, so that trials of A and B in one bin keep different numbers.
    after = _read(b, ending, first_trial=int(before.ends.trial.max(initial=0)) + 1)
    changed = _changed(before, after)
    rows_a, rows_b, configuration = _pairs(before, after, changed)
    paired = len(rows_a) > 0 and len(rows_a) >= _ENOUGH_PAIRS * min(len(before.seed), len(after.seed))
    specs = [sweep.spec for data in (a, b) for sweep in data.directories]
    compared = _Compared(specs, before.ends, after.ends, None)
    if paired:
        ends = before.ends.at(rows_a)
        compared = _Compared(specs, ends, replace(after.ends.at(rows_b), trial=ends.trial), configuration)
    n_of_outcome = Counter(before.ends.outcome)
    outcomes = sorted({*before.ends.outcome, *after.ends.outcome}, key=lambda name: (-n_of_outcome[name], name))
    rate, stuck, *others = compared.differences(
        [
            (compared.a.ended, compared.b.ended),
            (compared.a.stuck, compared.b.stuck),
            *((compared.a.outcome == name, compared.b.outcome == name) for name in outcomes),
        ]
    )
    crossing = _crossing(names_of(by, "--by"), specs, before, after, changed)
    groups = crossing.groups() if crossing.names else []
    return SweepComparison(
        a=", ".join(sweep.sweep for sweep in a.directories),
        b=", ".join(sweep.sweep for sweep in b.directories),
        n_pairs=len(rows_a),
        n_configurations=len(np.unique(configuration)),
        paired=paired,
        changed=changed,
        ending=ending,
        rate=rate,
        stuck=stuck,
        outcomes=dict(zip(outcomes, others, strict=True)),
        by=crossing.by,
        groups=tuple(difference for difference in map(compared.difference_in, groups) if difference.n),
        by_test=compared.change_by(groups) if crossing.names else None,
        machines=_machines(a, b),
    )


def _machines(a: SweepData, b: SweepData) -> tuple[str, ...]:
    """Lists the types of machine that trained sweeps A and B; empty if there is only one type."""
    n_by_environment: list[dict[str | None, int]] = []
    for data in (a, b):
        with data.reading() as connection:
            n_by_environment.append(environments_in(connection))
    directories = (*a.directories, *b.directories)
    if not are_several([name for counts in n_by_environment for name in counts], directories):
        return ()
    return tuple(types_in_words(counts, directories) for counts in n_by_environment)


def _ending(a: SweepData, b: SweepData, outcome: str, detail: str | None) -> Ending:
    """Reads from the ledgers the ending whose rate is compared. A detail of an outcome may occur in only one of the
    sweeps."""
    with a.reading() as connection, suppress(UserError):
        return read_ending(connection, outcome, detail)
    with b.reading() as connection:
        return read_ending(connection, outcome, detail)


def _read(data: SweepData, ending: Ending, first_trial: int = 0) -> _Trainings:
    with data.reading() as connection:
        table = connection.sql(
            "select trial, seed, outcome::varchar as outcome, stuck, "
            f"coalesce({ending.condition}, false) as ended, columns('param_.*') "
            f"from trainings where {IS_JUDGED} order by trial, replicate"
        ).to_arrow_table()
    columns = {name: table[name].to_pylist() for name in table.column_names}
    ends = _Ends(
        np.array(columns.pop("trial"), np.int64) + first_trial,
        np.array(columns.pop("outcome"), np.object_),
        np.array(columns.pop("stuck"), np.bool_),
        np.array(columns.pop("ended"), np.bool_),
    )
    seeds = columns.pop("seed")
    return _Trainings(ends, seeds, {name.removeprefix("param_"): values for name, values in columns.items()})


def _changed(before: _Trainings, after: _Trainings) -> dict[str, tuple[Scalar, Scalar]]:
    """Finds the parameters with one value throughout sweep A and another throughout sweep B. Pairing ignores these."""
    changed: dict[str, tuple[Scalar, Scalar]] = {}
    for name in before.parameters.keys() & after.parameters.keys():
        old, new = list(dict.fromkeys(before.parameters[name])), list(dict.fromkeys(after.parameters[name]))
        if len(old) == len(new) == 1 and old != new:
            changed[name] = (old[0], new[0])
    return {name: changed[name] for name in before.parameters if name in changed}


def _pairs(
    before: _Trainings, after: _Trainings, changed: Mapping[str, object]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Returns the rows of sweep A and of sweep B that form P pairs, and the number of each pair's configuration, each
    (P,)."""
    shared = [name for name in before.parameters if name in after.parameters and name not in changed]
    # A parameter with the same value in all trainings of A and B is left out of the key: trainings do not differ in it.
    names = [name for name in shared if len({*before.parameters[name], *after.parameters[name]}) > 1]
    waiting: dict[tuple[Configuration, int], list[int]] = defaultdict(list)
    for row, key in enumerate(_keys(after, names)):
        waiting[key].append(row)
    pairs = []
    numbers: dict[Configuration, int] = {}
    for row, key in enumerate(_keys(before, names)):
        if waiting.get(key):
            pairs.append((row, waiting[key].pop(0), numbers.setdefault(key[0], len(numbers))))
    rows_a, rows_b, configuration = np.array(pairs, np.int64).reshape(-1, 3).T
    return rows_a, rows_b, configuration


def _keys(trainings: _Trainings, names: Sequence[str]) -> list[tuple[Configuration, int]]:
    columns = [trainings.parameters[name] for name in names]
    values = list(zip(*columns, strict=True)) if columns else [()] * len(trainings.seed)
    return list(zip(values, trainings.seed, strict=True))


def _crossing(
    names: Sequence[str],
    specs: Sequence[Sweep],
    before: _Trainings,
    after: _Trainings,
    changed: Mapping[str, object],
) -> Crossing:
    """Sorts the trials of both sweeps into bins of the named parameters."""
    axes, trials = [], [*before.ends.trial.tolist(), *after.ends.trial.tolist()]
    for name in names:
        for trainings in (before, after):
            check_known("--by", name, trainings.parameters, "", "name a parameter that both sweeps have")
        if name in changed:
            raise UserError(
                "--by",
                given=name,
                expected="a parameter that varies within A and B",
                fix="leave this parameter out of --by: A and B differ in it, so it is compared anyway",
            )
        values = dict(zip(trials, [*before.parameters[name], *after.parameters[name]], strict=True))
        axes.append(tuple(groups_by(specs, name, values)))
    return Crossing(tuple(names), tuple(axes), frozenset(trials))
