"""Compares two sweeps. If enough trainings of both have equal configuration and seed, only these pairs are compared,
else all trainings."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from attnsweep.search_spaces.dimensions import Categorical, Scalar
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError

_ENOUGH_PAIRS = 0.5
"""The sweeps are compared on pairs if at least this share of the smaller sweep's trainings belongs to a pair."""


@dataclass(frozen=True, slots=True)
class GroupDifference:
    """The difference over the `n` trainings in one bin of a parameter, or in one cell of two."""

    label: str
    n: int
    rate: RateDifference


@dataclass(frozen=True, slots=True)
class SweepComparison:
    """The differences of the stuck rate and of each outcome's rate between two sweeps, with intervals.

    Attributes:
        n_pairs: The number of pairs of trainings with equal configuration and seed, neither of which failed.
        changed_parameters: Those that have one value in all of A and another in all of B. The trainings of a pair are
            equal in all others.
        ranges: What was tried in A and in B of each parameter that the two declare otherwise.
        n_outside: The trainings of A and of B that lie outside the other's ranges, and are left out.
        rate: Of the ending `rate_of`.
    """

    a: str
    b: str
    paired: bool
    n_pairs: int
    n_configurations: int
    changed_parameters: Mapping[str, tuple[Scalar, Scalar]]
    ranges: Mapping[str, tuple[str, str]]
    samplers: tuple[str, ...]
    n_outside: tuple[int, int]
    rate_of: Ending
    rate: RateDifference
    difference_is_shown: bool
    stuck_rate: RateDifference
    outcomes: Mapping[str, RateDifference]
    by: tuple[str, ...]
    groups: tuple[GroupDifference, ...]

    def sentence(self) -> str:
        """The difference of the rate, and whether the data show a change."""
        if self.rate.difference is None:
            return f"{self.rate_of.share_label}: nothing to compare, every training failed in one of the sweeps"
        shown = "" if self.difference_is_shown else ": no difference is shown"
        return f"{self.rate_of.share_label} changed by {difference_label(self.rate)}{shown}"

    def lines(self) -> Iterator[str]:
        """What was compared, and how."""
        yield f"A {self.a}"
        yield f"B {self.b}"
        if changed := self.changed_parameters:
            pairs = (f"{name} {value_label(old)} -> {value_label(new)}" for name, (old, new) in changed.items())
            yield f"differ in {', '.join(pairs)}"
        if self.ranges:
            a, b = map(str, self.n_outside)
            yield f"ranges differ in {', '.join(f'{name} {old} -> {new}' for name, (old, new) in self.ranges.items())}"
            yield f"only the common part is compared: {a} trainings of A and {b} of B lie outside and are left out"
        if self.samplers:
            yield f"samplers differ, {' -> '.join(self.samplers)}: each rate is over the trials that its sampler chose"
        if self.paired:
            configurations = f"of {self.n_configurations} trials"
            yield f"{self.n_pairs} pairs of trainings with equal parameters and seed, {configurations}"
        else:
            yield f"not paired: {self.n_pairs} trainings have a counterpart with equal parameters and seed"

    def table(self) -> pa.Table:
        """One row for each rate that is compared."""
        name, numbers = self.rate_of.share_label, ("a", "b", "difference", "low", "high", "p")
        compared = [("stuck rate", "", self.stuck_rate)]
        compared += [("outcome", outcome, difference) for outcome, difference in self.outcomes.items()]
        compared += [(name, "", self.rate)] * (self.rate_of.detail is not None)
        compared += [("group", group.label, group.rate) for group in self.groups]
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

    def at(self, rows: NDArray[np.bool_]) -> "_Trainings":
        parameters = {name: list(itertools.compress(values, rows)) for name, values in self.parameters.items()}
        return _Trainings(self.specs, self.ends.at(rows), list(itertools.compress(self.seed, rows)), parameters)


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

    def difference_in(self, label: str, trials: Sequence[int]) -> GroupDifference:
        in_a, in_b = (np.isin(ends.trial, trials) for ends in (self.a, self.b))
        configuration = None if self.configuration is None else self.configuration[in_a]
        inside = replace(self, a=self.a.at(in_a), b=self.b.at(in_b), configuration=configuration)
        (difference,) = inside.differences([(inside.a.ended, inside.b.ended)])
        n = len(inside.a.trial) + (len(inside.b.trial) if configuration is None else 0)
        return GroupDifference(label, n, difference)


def compare(
    a: SweepData | PlaceName | str,
    b: SweepData | PlaceName | str,
    *,
    by: str | Sequence[str] | None = None,
    outcome: str = "stuck",
    detail: str | None = None,
) -> SweepComparison:
    """Compares a rate, such as the stuck rate, between two sweeps `a` and `b` (opened, or their directories). Only
    trials that lie in the ranges of both are compared. If enough trainings have a partner of equal configuration and
    seed in the other sweep, only these pairs are compared; otherwise all trainings are.

    Args:
        by: A parameter, or two: the rates are also compared in each bin, or in each cell of the two.
        outcome: The rate to compare: of an outcome such as `degenerate_zero`; `stuck` for all those that count as
            stuck.
        detail: An `outcome_detail` such as `mean`; default any.
    """
    a, b = (sweep if isinstance(sweep, SweepData) else SweepData.open(sweep) for sweep in (a, b))
    workloads = [data.specs[0].workload for data in (a, b)]
    if workloads[0] != workloads[1]:
        expected = f"a sweep of the workload of sweep A, which is {workloads[0]}"
        fix = "give two sweeps of the same workload"
        raise UserError("B", given=f"a sweep of the workload {workloads[1]}", expected=expected, fix=fix)
    ending = _ending(a, b, outcome, detail)
    before = _read(a, ending)
    # The trials of B get numbers after those of A, so that no number is that of two trials.
    after = _read(b, ending, first_trial=int(before.ends.trial.max(initial=0)) + 1)
    changed = _changed(before, after)
    shared = [name for name in before.parameters if name in after.parameters and name not in changed]
    ranges, inside = _common(before, after, shared)
    before, after = before.at(inside[0]), after.at(inside[1])
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
    differences = (compared.difference_in(label, trials) for label, trials in cells.items())
    return SweepComparison(
        a=", ".join(sweep.sweep for sweep in a.directories),
        b=", ".join(sweep.sweep for sweep in b.directories),
        paired=paired,
        n_pairs=len(rows_a),
        n_configurations=len(np.unique(configuration)),
        changed_parameters=changed,
        ranges=ranges,
        samplers=samplers if samplers[0] != samplers[1] else (),
        n_outside=(int((~inside[0]).sum()), int((~inside[1]).sum())),
        rate_of=ending,
        rate=rate,
        difference_is_shown=rate.is_shown,
        stuck_rate=stuck,
        outcomes=dict(zip(outcomes, others, strict=True)),
        by=groups.names,
        groups=tuple(difference for difference in differences if difference.n),
    )


def _ending(a: SweepData, b: SweepData, outcome: str, detail: str | None) -> Ending:
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


def _common(
    before: _Trainings, after: _Trainings, shared: Sequence[str]
) -> tuple[dict[str, tuple[str, str]], list[NDArray[np.bool_]]]:
    """What each side has tried of the parameters that are not declared alike, and whether each training lies in what
    the other side has tried."""
    ranges, inside = {}, [np.ones(len(side.seed), np.bool_) for side in (before, after)]
    for name in shared:
        if _declared(before.specs, name) == _declared(after.specs, name):
            continue
        tried = [{*side.parameters[name]} for side in (before, after)]
        ranges[name] = (_tried_label(tried[0]), _tried_label(tried[1]))
        for rows, side, others in zip(inside, (before, after), reversed(tried), strict=True):
            rows &= np.array([_is_among(value, others) for value in side.parameters[name]], np.bool_)
    if len(before.seed) and len(after.seed) and not all(rows.any() for rows in inside):
        given = ", ".join(f"{name} {new} (A: {old})" for name, (old, new) in ranges.items())
        fix = "give sweeps whose ranges overlap; `attnsweep report A B` shows both side by side"
        raise UserError("B", given=given, expected="ranges in which both sweeps have trials", fix=fix)
    return ranges, inside


def _declared(specs: Sequence[Sweep], name: str) -> list[object]:
    """A choice in any order."""
    declared = [spec.parameters().get(name) for spec in specs]
    return [{*each.choices} if isinstance(each, Categorical) else each for each in declared]


def _numbers(values: Collection[Scalar]) -> list[float]:
    return [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]


def _is_among(value: Scalar, others: Collection[Scalar]) -> bool:
    """Within the range of the others' numbers, or one of them."""
    numbers = _numbers(others)
    if isinstance(value, int | float) and not isinstance(value, bool) and numbers:
        return min(numbers) <= value <= max(numbers)
    return value in others


def _tried_label(values: Collection[Scalar]) -> str:
    numbers = _numbers(values)
    labels = [f"{min(numbers):g}..{max(numbers):g}"] if numbers else []
    return ", ".join([*labels, *sorted(value_label(value) for value in values if value not in numbers)])


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
