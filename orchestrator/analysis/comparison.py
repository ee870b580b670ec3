"""Compares two sweeps. If enough trainings of both have equal configuration and seed, only these pairs are compared,
else all trainings."""

import itertools
import textwrap
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.answer import DrawnAnswer, Record, table
from attnsweep.orchestrator.analysis.common_part import Space, SpaceDifference
from attnsweep.orchestrator.analysis.difference import (
    RateDifference,
    difference_label,
    paired_differences,
    unpaired_difference,
)
from attnsweep.orchestrator.analysis.labels import BLUE, GREY, VERMILION, check_known, value_label
from attnsweep.orchestrator.analysis.machines import are_several, environments_in, types_in_words
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.analysis.rates.bins import Crossing, Group, by_label, groups_by, names_of
from attnsweep.orchestrator.analysis.rates.by_parameter import Ending, read_ending
from attnsweep.orchestrator.analysis.rates.intervals import (
    pooling,
    trials_count_once,
    weights_of_trainings,
)
from attnsweep.orchestrator.ledger.views import IS_JUDGED
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ENOUGH_PAIRS = 0.5
"""The sweeps are compared on pairs if at least this share of the smaller sweep's trainings belongs to a pair."""


@dataclass(frozen=True, slots=True)
class GroupDifference(Record):
    """The difference over the trials in one bin of a parameter, or in one cell of two."""

    label: str
    n: int
    rate: RateDifference

    json_keys = ("label", "n", "**rate")


@dataclass(frozen=True, slots=True, repr=False)
class SweepComparison(DrawnAnswer, Record):
    """The differences of the stuck rate and of each outcome's rate between two sweeps, with intervals.

    Attributes:
        n_pairs: The number of pairs of trainings with equal configuration and seed, neither of which failed.
        changed: The parameters that have one value in all of A and another value in all of B. The trainings of a pair
            are equal in all other parameters.
        by: The parameter whose bins are the groups, or two with a comma between them; empty if none was asked for.
        machines: The types of machine that trained A and B, in words; empty if there is one type only.
    """

    a: str
    b: str
    n_pairs: int
    n_configurations: int
    paired: bool
    changed: Mapping[str, tuple[Scalar, Scalar]]
    spaces: SpaceDifference
    ending: Ending
    rate: RateDifference
    stuck: RateDifference
    outcomes: Mapping[str, RateDifference]
    by: str
    groups: tuple[GroupDifference, ...]
    machines: tuple[str, ...] = ()

    json_keys = (
        *("a", "b", "paired", "n_pairs", "n_configurations", "changed_parameters=_changed_values"),
        *("ranges=spaces.ranges", "samplers=spaces.samplers", "n_outside=spaces.n_outside", "rate_of=ending"),
        *("rate", "difference_is_shown=rate.is_shown", "stuck_rate=stuck", "outcomes"),
        *("by=_named", "groups", "machines"),
    )

    def _in_words(self) -> str:
        return f"{self.a} -> {self.b}: {self.sentence()}"

    @property
    def _changed_values(self) -> dict[str, dict[str, Scalar]]:
        return {name: {"a": old, "b": new} for name, (old, new) in self.changed.items()}

    @property
    def _named(self) -> str | None:
        return self.by or None

    def sentence(self) -> str:
        """The difference of the rate, and whether the data show a change."""
        if self.rate.value is None:
            return f"{self.ending.share_label}: nothing to compare, every training failed in one of the sweeps"
        shown = "" if self.rate.is_shown else ": no difference is shown"
        return f"{self.ending.share_label} changed by {difference_label(self.rate)}{shown}"

    def how(self) -> str:
        """Whether pairs were compared, and how many there are."""
        if self.paired:
            return (
                f"{self.n_pairs} pairs of trainings with equal parameters and seed, of {self.n_configurations} trials"
            )
        return f"not paired: {self.n_pairs} trainings have a counterpart with equal parameters and seed"

    def to_arrow(self) -> pa.Table:
        """One row for each rate that is compared."""
        columns = {"what": str, "label": str} | dict.fromkeys(("a", "b", "difference", "low", "high", "p"), float)
        rows = (
            (what, label, diff.before.share, diff.after.share, diff.value, diff.low, diff.high, diff.p)
            for what, label, diff in self._differences()
        )
        return table(columns, rows)

    def _differences(self) -> Iterator[tuple[str, str, RateDifference]]:
        name = self.ending.share_label
        yield "stuck rate", "", self.stuck
        yield from (("outcome", outcome, difference) for outcome, difference in self.outcomes.items())
        if self.ending.detail is not None:
            yield name, "", self.rate
        yield from ((f"{name} by {self.by}", group.label, group.rate) for group in self.groups)

    def plot(self) -> "Figure":
        """The difference of each rate, with 95% intervals."""
        from attnsweep.orchestrator.analysis import figures

        rows = list(self._differences())
        group = f"{figures.figure_text(self.ending.share_label)}, {by_label(self.by)}"
        names = [
            figures.figure_text((label or what).replace("_", " "))
            if what == "outcome" or not label
            else f"{group} {figures.figure_text(label, 40)}"
            for what, label, _ in rows
        ]
        with figures.house_style():
            figure, panel = figures.new_figure(1.5 * figures.WIDTH, 1.2 + 0.3 * len(rows), grid="x")
            panel.axvline(0, color=GREY, linewidth=0.8)
            for row, (*_, diff) in enumerate(rows):
                if diff.interval is not None:
                    colour, marker = (VERMILION, "s") if diff.is_shown else (BLUE, "o")
                    figures.draw_interval(panel, row, diff.interval, "x", fmt=marker, color=colour)
            panel.set_yticks(range(len(rows)), names)
            panel.invert_yaxis()
            panel.set_xlabel("change of the share, B less A (95% interval)")
            figure.suptitle("\n".join(textwrap.wrap(self.how(), 60)), fontsize="medium")
        return figure


def change_label(changed: Mapping[str, tuple[Scalar, Scalar]]) -> str:
    """Such as `layer_norm_eps 1e-05 -> 0.001`."""
    return ", ".join(f"{name} {value_label(old)} -> {value_label(new)}" for name, (old, new) in changed.items())


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
    """The trainings of one sweep that neither failed nor were pruned, sorted by trial and replicate."""

    ends: _Ends
    seed: Sequence[int]
    parameters: Mapping[str, Sequence[Scalar]]

    def space(self, data: SweepData) -> Space:
        constants = {name: values[0] for name, values in self.parameters.items() if len({*values}) == 1}
        return Space([sweep.spec for sweep in data.directories], constants)

    def inside(self, space: Space, names: Collection[str], own: Space) -> NDArray[np.bool_]:
        """Whether each training's named parameters lie in the other sweep's space."""
        _, rows, trial = np.unique(self.ends.trial, return_index=True, return_inverse=True)
        points = ({name: values[row] for name, values in self.parameters.items()} for row in rows)
        return np.array([space.contains(point, names, own) for point in points], np.bool_)[trial]

    def at(self, rows: NDArray[np.bool_]) -> "_Trainings":
        parameters = {name: list(itertools.compress(values, rows)) for name, values in self.parameters.items()}
        return _Trainings(self.ends.at(rows), list(itertools.compress(self.seed, rows)), parameters)


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

    def difference_in(self, group: Group) -> GroupDifference:
        in_a, in_b = (np.isin(ends.trial, list(group.trials)) for ends in (self.a, self.b))
        configuration = None if self.configuration is None else self.configuration[in_a]
        inside = replace(self, a=self.a.at(in_a), b=self.b.at(in_b), configuration=configuration)
        (difference,) = inside.differences([(inside.a.ended, inside.b.ended)])
        n = len(inside.a.trial) + (len(inside.b.trial) if configuration is None else 0)
        return GroupDifference(group.label, n, difference)


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
    workloads = [data.directories[0].spec.workload for data in (a, b)]
    if workloads[0] != workloads[1]:
        expected = f"a sweep of the workload of sweep A, which is {workloads[0]}"
        fix = "give two sweeps of the same workload"
        raise UserError("B", given=f"a sweep of the workload {workloads[1]}", expected=expected, fix=fix)
    ending = _ending(a, b, outcome, detail)
    before = _read(a, ending)
    # The trials of sweep B get numbers after those of sweep A, so that a trial of A and a trial of B never have the
    # same number.
    after = _read(b, ending, first_trial=int(before.ends.trial.max(initial=0)) + 1)
    changed = _changed(before, after)
    before, after, spaces = _common(a, b, before, after, changed)
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
    crossing = _crossing(names_of(by, "--by"), specs, (before, after), changed)
    groups = list(crossing.cells().values()) if crossing.names else []
    return SweepComparison(
        a=", ".join(sweep.sweep for sweep in a.directories),
        b=", ".join(sweep.sweep for sweep in b.directories),
        n_pairs=len(rows_a),
        n_configurations=len(np.unique(configuration)),
        paired=paired,
        changed=changed,
        spaces=spaces,
        ending=ending,
        rate=rate,
        stuck=stuck,
        outcomes=dict(zip(outcomes, others, strict=True)),
        by=crossing.by,
        groups=tuple(difference for difference in map(compared.difference_in, groups) if difference.n),
        machines=_machines(a, b),
    )


def _machines(a: SweepData, b: SweepData) -> tuple[str, ...]:
    """Empty if there is only one."""
    n_by_environment: list[dict[str | None, int]] = []
    for data in (a, b):
        with data.reading() as connection:
            n_by_environment.append(environments_in(connection))
    directories = (*a.directories, *b.directories)
    if not are_several([name for counts in n_by_environment for name in counts], directories):
        return ()
    return tuple(types_in_words(counts, directories) for counts in n_by_environment)


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
    return _Trainings(ends, columns["seed"], parameters)


def _changed(before: _Trainings, after: _Trainings) -> dict[str, tuple[Scalar, Scalar]]:
    """Those that have one value throughout A and another throughout B."""
    changed: dict[str, tuple[Scalar, Scalar]] = {}
    for name, values in before.parameters.items():
        old, new = list(dict.fromkeys(values)), list(dict.fromkeys(after.parameters.get(name, ())))
        if len(old) == len(new) == 1 and old != new:
            changed[name] = (old[0], new[0])
    return changed


def _common(
    a: SweepData, b: SweepData, before: _Trainings, after: _Trainings, changed: Mapping[str, object]
) -> tuple[_Trainings, _Trainings, SpaceDifference]:
    """Leaves out trainings outside the other sweep's ranges."""
    in_a, in_b = before.space(a), after.space(b)
    old, new = in_a.ranges(), in_b.ranges()
    shared = [name for name in before.parameters if name in after.parameters and name not in changed]
    compared = [name for name in (*shared, "where") if name in old and name in new]
    ranges = {name: (old[name], new[name]) for name in compared if old[name] != new[name]}
    samplers = (in_a.samplers(), in_b.samplers())
    inside = before.inside(in_b, ranges, in_a), after.inside(in_a, ranges, in_b)
    if len(before.seed) and len(after.seed) and not all(rows.any() for rows in inside):
        given = ", ".join(f"{name} {new} (A: {old})" for name, (old, new) in ranges.items())
        fix = "give sweeps whose ranges overlap; `attnsweep report A B` shows both side by side"
        raise UserError("B", given=given, expected="ranges in which both sweeps have trials", fix=fix)
    n_outside = (int((~inside[0]).sum()), int((~inside[1]).sum()))
    spaces = SpaceDifference(ranges, samplers if samplers[0] != samplers[1] else (), n_outside)
    return before.at(inside[0]), after.at(inside[1]), spaces


def _pairs(
    before: _Trainings, after: _Trainings, changed: Mapping[str, object]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Of equal configuration and seed."""
    shared = [name for name in before.parameters if name in after.parameters and name not in changed]
    # Parameters that have the same value in all trainings of both sweeps, A and B, are left out. They are not needed to
    # find pairs of trainings with equal configurations.
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


def _crossing(
    names: Sequence[str], specs: Sequence[Sweep], sides: Sequence[_Trainings], changed: Mapping[str, object]
) -> Crossing:
    axes, trials = [], [trial for side in sides for trial in side.ends.trial.tolist()]
    for name in names:
        for side in sides:
            check_known("--by", name, side.parameters, "", "name a parameter that both sweeps have")
        if name in changed:
            fix = "leave it out of --by: each sweep has one value of it, so comparing A with B compares these values"
            raise UserError("--by", given=name, expected="a parameter that varies within A and B", fix=fix)
        values = [value for side in sides for value in side.parameters[name]]
        axes.append(tuple(groups_by(specs, name, dict(zip(trials, values, strict=True)))))
    return Crossing(tuple(names), tuple(axes), frozenset(trials))
