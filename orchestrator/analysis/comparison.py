"""Compares two sweeps. If enough trainings of both have equal configuration and seed, only these pairs are compared,
else all trainings."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.difference import (
    RateDifference,
    difference_label,
    paired_differences,
    unpaired_difference,
)
from attnsweep.orchestrator.analysis.labels import check_known, value_label
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.analysis.rates.bins import Groups, group_trials, names_of
from attnsweep.orchestrator.analysis.rates.by_parameter import Ending, read_ending
from attnsweep.orchestrator.analysis.rates.intervals import pooling, trials_count_once, weights_of_trainings
from attnsweep.orchestrator.analysis.tables import table_of
from attnsweep.orchestrator.ledger.views import IS_JUDGED
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.search_spaces.dimensions import Categorical, Dimension, Scalar
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError

_ENOUGH_PAIRS = 0.5
"""The sweeps are compared on pairs if at least this share of the smaller sweep's trainings belongs to a pair."""


@dataclass(frozen=True, slots=True)
class SweepComparison:
    """The differences of the stuck rate and of each outcome's rate between two sweeps, with intervals.

    Attributes:
        n_pairs: The number of pairs of trainings with equal configuration and seed, neither of which failed.
        changed_parameters: Those that have one value in all of A and another in all of B. The trainings of a pair are
            equal in all others.
        spaces: The parameters that the two declare otherwise.
        rate, groups: Of the outcome `rate_of`, over all and in the bins of `by`.
    """

    a: str
    b: str
    paired: bool
    n_pairs: int
    n_configurations: int
    changed_parameters: Mapping[str, tuple[Scalar, Scalar]]
    spaces: tuple[str, ...]
    samplers: tuple[str, ...]
    rate_of: str
    rate: RateDifference
    difference_is_shown: bool
    stuck_rate: RateDifference
    outcomes: Mapping[str, RateDifference]
    by: tuple[str, ...]
    groups: Mapping[str, RateDifference]

    def sentence(self) -> str:
        """The difference of the rate, and whether the data show a change."""
        what = Ending(self.rate_of).share_label
        if self.rate.difference is None:
            return f"{what}: nothing to compare, every training failed in one of the sweeps"
        shown = "" if self.difference_is_shown else ": no difference is shown"
        return f"{what} changed by {difference_label(self.rate)}{shown}"

    def lines(self) -> Iterator[str]:
        """What was compared, and how."""
        yield f"A {self.a}"
        yield f"B {self.b}"
        if changed := self.changed_parameters:
            pairs = (f"{name} {value_label(old)} -> {value_label(new)}" for name, (old, new) in changed.items())
            yield f"differ in {', '.join(pairs)}"
        if self.spaces:
            yield f"ranges differ in {', '.join(self.spaces)}: each rate is over the trials of its own ranges"
        if self.samplers:
            yield f"samplers differ, {' -> '.join(self.samplers)}: each rate is over the trials that its sampler chose"
        if self.paired:
            configurations = f"of {self.n_configurations} trials"
            yield f"{self.n_pairs} pairs of trainings with equal parameters and seed, {configurations}"
        else:
            yield f"not paired: {self.n_pairs} trainings have a counterpart with equal parameters and seed"

    def table(self) -> pa.Table:
        """One row for each rate that is compared."""
        numbers = ("a", "b", "difference", "low", "high", "p")
        compared = [("stuck rate", "", self.stuck_rate)]
        compared += [("outcome", outcome, difference) for outcome, difference in self.outcomes.items()]
        compared += [("group", label, difference) for label, difference in self.groups.items()]
        rows = (
            {"what": what, "label": label, "a": each.a.share, "b": each.b.share}
            | {number: getattr(each, number) for number in numbers[2:]}
            for what, label, each in compared
        )
        return table_of({"what": str, "label": str} | dict.fromkeys(numbers, float), rows)


@dataclass(frozen=True, eq=False, slots=True)
class _Ends:
    """One entry per training."""

    trial: NDArray[np.int64]
    outcome: NDArray[np.object_]
    stuck: NDArray[np.bool_]
    ended: NDArray[np.bool_]

    def at(self, rows: NDArray[Any]) -> "_Ends":
        return _Ends(self.trial[rows], self.outcome[rows], self.stuck[rows], self.ended[rows])

    def counts(self, has: NDArray[np.bool_]) -> NDArray[np.int64]:
        """For each trial its trainings, and those for which `has` is true: (n_trials, 2)."""
        place = np.unique(self.trial, return_inverse=True)[1]
        return np.stack([np.bincount(place), np.bincount(place, has).astype(np.int64)], axis=1)


@dataclass(frozen=True, eq=False, slots=True)
class _Trainings:
    """The trainings of one side that neither failed nor were pruned, sorted by trial and replicate."""

    specs: Sequence[Sweep]
    ends: _Ends
    seed: Sequence[int]
    parameters: Mapping[str, Sequence[Scalar]]


@dataclass(frozen=True, eq=False, slots=True)
class _Compared:
    specs: Sequence[Sweep]
    a: _Ends
    b: _Ends
    configuration: NDArray[np.int64] | None

    def differences(self, has: Sequence[tuple[NDArray[np.bool_], NDArray[np.bool_]]]) -> tuple[RateDifference, ...]:
        pool = pooling(*self.specs)
        if self.configuration is None:
            return tuple(unpaired_difference(self.a.counts(in_a), self.b.counts(in_b), pool) for in_a, in_b in has)
        cluster = np.unique(self.configuration, return_inverse=True)[1]
        weight = weights_of_trainings(cluster, once_per_trial=trials_count_once(*self.specs))
        before, after = (np.array(masks, dtype=np.bool_) for masks in zip(*has, strict=True))
        return paired_differences(before, after, cluster, weight, pool)

    def difference_in(self, trials: Sequence[int]) -> RateDifference:
        in_a, in_b = (np.isin(ends.trial, trials) for ends in (self.a, self.b))
        configuration = None if self.configuration is None else self.configuration[in_a]
        inside = replace(self, a=self.a.at(in_a), b=self.b.at(in_b), configuration=configuration)
        (difference,) = inside.differences([(inside.a.ended, inside.b.ended)])
        return difference


def compare(
    a: SweepData | PlaceName | str,
    b: SweepData | PlaceName | str,
    *,
    by: str | Sequence[str] | None = None,
    outcome: str = "stuck",
) -> SweepComparison:
    """Compares a rate, such as the stuck rate, between two sweeps `a` and `b` (opened, or their directories). If
    enough trainings have a partner of equal configuration and
    seed in the other sweep, only these pairs are compared; otherwise all trainings are.

    Args:
        by: A parameter, or two: the rates are also compared in each bin, or in each cell of the two.
        outcome: The rate to compare: of an outcome such as `degenerate_zero`; `stuck` for all those that count as
            stuck.
    """
    a, b = (sweep if isinstance(sweep, SweepData) else SweepData.open(sweep) for sweep in (a, b))
    workloads = [data.specs[0].workload for data in (a, b)]
    if workloads[0] != workloads[1]:
        expected = f"a sweep of the workload of sweep A, which is {workloads[0]}"
        fix = "give two sweeps of the same workload"
        raise UserError("B", given=f"a sweep of the workload {workloads[1]}", expected=expected, fix=fix)
    ending = _ending(a, b, outcome)
    before = _read(a, ending)
    # The trials of B get numbers after those of A, so that no number is that of two trials.
    after = _read(b, ending, first_trial=int(before.ends.trial.max(initial=0)) + 1)
    changed = _changed(before, after)
    shared = [name for name in before.parameters if name in after.parameters and name not in changed]
    rows_a, rows_b, configuration = _pairs(before, after, shared)
    paired = len(rows_a) > 0 and len(rows_a) >= _ENOUGH_PAIRS * min(len(before.seed), len(after.seed))
    specs = (*before.specs, *after.specs)
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
    groups = _groups(names_of(by, "--by"), specs, (before, after), changed)
    cells = {" × ".join(groups.label(place).values()): trials for place, trials in groups.cells().items() if place}
    samplers = tuple(", ".join(dict.fromkeys(spec.sampler for spec in side.specs)) for side in (before, after))
    differences = {label: compared.difference_in(trials) for label, trials in cells.items()}
    return SweepComparison(
        a=", ".join(sweep.sweep for sweep in a.directories),
        b=", ".join(sweep.sweep for sweep in b.directories),
        paired=paired,
        n_pairs=len(rows_a),
        n_configurations=len(np.unique(configuration)),
        changed_parameters=changed,
        spaces=_spaces(before, after, shared),
        samplers=samplers if samplers[0] != samplers[1] else (),
        rate_of=outcome,
        rate=rate,
        difference_is_shown=rate.is_shown,
        stuck_rate=stuck,
        outcomes=dict(zip(outcomes, others, strict=True)),
        by=groups.names,
        groups={label: each for label, each in differences.items() if each.a.n + each.b.n},
    )


def _ending(a: SweepData, b: SweepData, outcome: str) -> Ending:
    with a.reading() as connection, suppress(UserError):
        return read_ending(connection, outcome)
    with b.reading() as connection:
        return read_ending(connection, outcome)


def _read(data: SweepData, ending: Ending, first_trial: int = 0) -> _Trainings:
    with data.reading() as connection:
        table = connection.sql(
            "select trial, seed, outcome::varchar as outcome, stuck, "
            f"coalesce({ending.condition}, false) as ended, columns('param_.*') "
            f"from trainings where {IS_JUDGED} order by trial, replicate"
        ).to_arrow_table()
    columns = {name: table[name].to_pylist() for name in table.column_names}
    trial, outcome = np.array(columns["trial"], np.int64) + first_trial, np.array(columns["outcome"], np.object_)
    ends = _Ends(trial, outcome, *(np.array(columns[name], np.bool_) for name in ("stuck", "ended")))
    parameters = {name.removeprefix("param_"): values for name, values in columns.items() if name.startswith("param_")}
    return _Trainings(data.specs, ends, columns["seed"], parameters)


def _changed(before: _Trainings, after: _Trainings) -> dict[str, tuple[Scalar, Scalar]]:
    """Those that have one value throughout A and another throughout B."""
    changed: dict[str, tuple[Scalar, Scalar]] = {}
    for name, values in before.parameters.items():
        old, new = list(dict.fromkeys(values)), list(dict.fromkeys(after.parameters.get(name, ())))
        if len(old) == len(new) == 1 and old != new:
            changed[name] = (old[0], new[0])
    return changed


def _spaces(before: _Trainings, after: _Trainings, shared: Sequence[str]) -> tuple[str, ...]:
    """The parameters that the two sides declare otherwise."""
    declared = [[spec.parameters() for spec in side.specs] for side in (before, after)]

    def of(name: str) -> list[set[str]]:
        return [{_declared_label(each.get(name)) for each in spaces} for spaces in declared]

    return tuple(name for name in shared if of(name)[0] != of(name)[1])


def _declared_label(dimension: Dimension) -> str:
    """Equal for choices in any order."""
    return repr(sorted(map(repr, dimension.choices)) if isinstance(dimension, Categorical) else dimension)


def _pairs(
    before: _Trainings, after: _Trainings, shared: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Of equal configuration and seed."""
    # What has one value in all trainings of both sweeps is not needed to find pairs.
    names = [name for name in shared if len({*before.parameters[name], *after.parameters[name]}) > 1]
    in_a, in_b = (
        list(zip(trainings.seed, *(trainings.parameters[name] for name in names), strict=True))
        for trainings in (before, after)
    )
    waiting: dict[tuple[Scalar, ...], list[int]] = defaultdict(list)
    for row, key in enumerate(in_b):
        waiting[key].append(row)
    pairs = []
    numbers: dict[tuple[Scalar, ...], int] = {}
    for row, key in enumerate(in_a):
        if waiting.get(key):
            pairs.append((row, waiting[key].pop(0), numbers.setdefault(key[1:], len(numbers))))
    rows_a, rows_b, configuration = np.array(pairs, np.int64).reshape(-1, 3).T
    return rows_a, rows_b, configuration


def _groups(
    names: Sequence[str], specs: Sequence[Sweep], sides: Sequence[_Trainings], changed: Mapping[str, object]
) -> Groups:
    trials = [trial for side in sides for trial in side.ends.trial.tolist()]
    values = {}
    for name in names:
        for side in sides:
            check_known("--by", name, side.parameters, "", "name a parameter that both sweeps have")
        if name in changed:
            fix = "leave it out of --by: each sweep has one value of it, so comparing A with B compares these values"
            raise UserError("--by", given=name, expected="a parameter that varies within A and B", fix=fix)
        of_side = [value for side in sides for value in side.parameters[name]]
        values[name] = dict(zip(trials, of_side, strict=True))
    return group_trials(specs, values, {*trials})
