"""Is the stuck rate of one sweep different from another's?"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from orchestrator.analysis.difference import (
    Difference,
    difference_label,
    paired_differences,
    unpaired_difference,
)
from orchestrator.analysis.grouping import Group, groups_by
from orchestrator.analysis.intervals import weights_of_equal_trials
from orchestrator.analysis.rates import pooling, trials_count_once, value_label
from orchestrator.analysis.sweep_data import SweepData
from search_spaces.dimensions import Scalar
from search_spaces.sweep import Sweep
from workloads.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUCK = "stuck"
_ENOUGH_PAIRS = 0.5
"""Of the trainings of the smaller sweep: fewer coincide by chance, and would leave most of the evidence out."""

Configuration: TypeAlias = tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class GroupDifference:
    """The difference in the stuck rate in one bin of a parameter.

    Attributes:
        label: The bin.
        n: Pairs in it; trainings of both sweeps where they are not paired.
        stuck: The difference.
    """

    label: str
    n: int
    stuck: Difference


@dataclass(frozen=True, slots=True)
class SweepComparison:
    """Sweep B against sweep A.

    Attributes:
        a, b: The sweeps.
        n_pairs: Trainings of equal configuration and seed in both that did not fail in either.
        n_configurations: Of the pairs.
        paired: Whether the comparison is that of the pairs alone.
        changed: Parameters that have one value in A and another in B; pairs are equal in all others.
        stuck: The difference in the stuck rate.
        outcomes: That in each outcome that occurs, the most frequent in A first.
        by: The parameter that `groups` are the bins of; empty where none was asked for.
        groups: The difference in the stuck rate in each.
    """

    a: str
    b: str
    n_pairs: int
    n_configurations: int
    paired: bool
    changed: Mapping[str, tuple[Scalar, Scalar]]
    stuck: Difference
    outcomes: Mapping[str, Difference]
    by: str
    groups: tuple[GroupDifference, ...]

    def sentence(self) -> str:
        """`stuck rate changed by +0.12 [0.08, 0.16]`, and whether a difference is shown."""
        if self.stuck.value is None:
            return "stuck rate: nothing to compare, every training failed in one of the sweeps"
        shown = "" if self.stuck.is_shown else ": no difference is shown"
        return f"stuck rate changed by {difference_label(self.stuck)}{shown}"

    def how(self) -> str:
        """What was compared with what."""
        if self.paired:
            return (
                f"{self.n_pairs} pairs of trainings with equal parameters and seed, of {self.n_configurations} trials"
            )
        return f"not paired: {self.n_pairs} trainings have a counterpart with equal parameters and seed"

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "a": self.a,
            "b": self.b,
            "paired": self.paired,
            "n_pairs": self.n_pairs,
            "n_configurations": self.n_configurations,
            "changed_parameters": {name: {"a": old, "b": new} for name, (old, new) in self.changed.items()},
            "stuck_rate": self.stuck.as_json(),
            "difference_is_shown": self.stuck.is_shown,
            "outcomes": {outcome: each.as_json() for outcome, each in self.outcomes.items()},
            "by": self.by or None,
            "groups": [{"label": each.label, "n": each.n} | each.stuck.as_json() for each in self.groups],
        }

    def to_arrow(self) -> pa.Table:
        """One row for the stuck rate, each outcome and each group: rates in A and B, difference and interval."""
        rows: list[tuple[str, str, Difference]] = [("stuck rate", "", self.stuck)]
        rows += [("outcome", outcome, each) for outcome, each in self.outcomes.items()]
        rows += [(f"stuck rate by {self.by}", each.label, each.stuck) for each in self.groups]
        numbers = {
            "a": [each.before.share for _, _, each in rows],
            "b": [each.after.share for _, _, each in rows],
            "difference": [each.value for _, _, each in rows],
            "low": [each.low for _, _, each in rows],
            "high": [each.high for _, _, each in rows],
            "p": [each.p for _, _, each in rows],
        }
        columns = {name: pa.array(values, pa.float64()) for name, values in numbers.items()}
        return pa.table({"what": [row[0] for row in rows], "label": [row[1] for row in rows], **columns})

    def plot(self) -> "Figure":
        """The differences with their 95% intervals."""
        from orchestrator.analysis.answer_figures import comparison_figure

        return comparison_figure(self)


@dataclass(frozen=True, eq=False, slots=True)
class _Trainings:
    """The trainings of one sweep that did not fail, as columns."""

    trial: Sequence[int]
    seed: Sequence[int]
    outcome: Sequence[str]
    stuck: Sequence[bool]
    parameters: Mapping[str, Sequence[Scalar]]

    def has(self, thing: str) -> list[bool]:
        """Whether each has an outcome, or is stuck."""
        return list(self.stuck) if thing == STUCK else [outcome == thing for outcome in self.outcome]


@dataclass(frozen=True, eq=False, slots=True)
class _Pairs:
    """Rows of A and of B that belong together, and the number of their configuration."""

    rows_a: Sequence[int]
    rows_b: Sequence[int]
    cluster: Sequence[int]


def compare_sweeps(a: SweepData, b: SweepData, *, by: str | None = None) -> SweepComparison:
    """See `orchestrator.analysis.compare`."""
    workloads = [each.directories[0].spec.workload for each in (a, b)]
    if workloads[0] != workloads[1]:
        raise UserError(
            "B",
            given=f"a sweep of {workloads[1]}",
            expected=f"one of {workloads[0]}, as A is",
            mend="compare like with like",
        )
    before, after = _read(a), _read(b)
    changed = _changed(before, after)
    pairs = _pairs(before, after, changed)
    paired = len(pairs.rows_a) > 0 and len(pairs.rows_a) >= _ENOUGH_PAIRS * min(len(before.trial), len(after.trial))
    outcomes = sorted({*before.outcome, *after.outcome}, key=lambda name: (-list(before.outcome).count(name), name))
    specs = [each.spec for sweep in (a, b) for each in sweep.directories]
    found = _differences(specs, before, after, pairs if paired else None, [STUCK, *outcomes])
    return SweepComparison(
        a=", ".join(each.sweep for each in a.directories),
        b=", ".join(each.sweep for each in b.directories),
        n_pairs=len(pairs.rows_a),
        n_configurations=len(set(pairs.cluster)),
        paired=paired,
        changed=changed,
        stuck=found[0],
        outcomes=dict(zip(outcomes, found[1:], strict=True)),
        by=by or "",
        groups=() if by is None else tuple(_by(by, specs, before, after, pairs if paired else None, changed)),
    )


def _read(data: SweepData) -> _Trainings:
    with data.reading() as connection:
        table = connection.sql(
            "select trial, seed, outcome::varchar as outcome, stuck, columns('param_.*') "
            "from trainings where outcome <> 'failed' order by trial, replicate"
        ).to_arrow_table()
    columns = {name: table[name].to_pylist() for name in table.column_names}
    return _Trainings(
        columns.pop("trial"),
        columns.pop("seed"),
        columns.pop("outcome"),
        columns.pop("stuck"),
        {name.removeprefix("param_"): values for name, values in columns.items()},
    )


def _changed(before: _Trainings, after: _Trainings) -> dict[str, tuple[Scalar, Scalar]]:
    """Parameters with one value throughout A and another throughout B: what is compared, and no part of a pair."""
    changed: dict[str, tuple[Scalar, Scalar]] = {}
    for name in before.parameters.keys() & after.parameters.keys():
        old, new = list(dict.fromkeys(before.parameters[name])), list(dict.fromkeys(after.parameters[name]))
        if len(old) == len(new) == 1 and old != new:
            changed[name] = (old[0], new[0])
    return {name: changed[name] for name in before.parameters if name in changed}


def _pairs(before: _Trainings, after: _Trainings, changed: Mapping[str, object]) -> _Pairs:
    shared = [name for name in before.parameters if name in after.parameters and name not in changed]
    # What is the same in every training need not be looked at in each.
    names = [name for name in shared if len({*before.parameters[name], *after.parameters[name]}) > 1]
    waiting: dict[tuple[Configuration, int], list[int]] = defaultdict(list)
    for row, key in enumerate(_keys(after, names)):
        waiting[key].append(row)
    rows_a, rows_b, cluster = [], [], []
    numbers: dict[Configuration, int] = {}
    for row, key in enumerate(_keys(before, names)):
        if waiting.get(key):
            rows_a.append(row)
            rows_b.append(waiting[key].pop(0))
            cluster.append(numbers.setdefault(key[0], len(numbers)))
    return _Pairs(rows_a, rows_b, cluster)


def _keys(trainings: _Trainings, names: Sequence[str]) -> list[tuple[Configuration, int]]:
    columns = [trainings.parameters[name] for name in names]
    values = list(zip(*columns, strict=True)) if columns else [()] * len(trainings.seed)
    return list(zip(values, trainings.seed, strict=True))


def _differences(
    specs: Sequence[Sweep], before: _Trainings, after: _Trainings, pairs: _Pairs | None, things: Sequence[str]
) -> tuple[Difference, ...]:
    pool = pooling(*specs)
    if pairs is None:
        return tuple(
            unpaired_difference(
                _by_trial(before.trial, before.has(each)), _by_trial(after.trial, after.has(each)), pool
            )
            for each in things
        )
    has_a, has_b = (np.array([each.has(thing) for thing in things], dtype=np.bool_) for each in (before, after))
    cluster = np.unique(np.array(pairs.cluster, dtype=np.int64), return_inverse=True)[1]
    rows_a, rows_b = (np.array(rows, dtype=np.int64) for rows in (pairs.rows_a, pairs.rows_b))
    weight = weights_of_equal_trials(cluster) if trials_count_once(*specs) else np.ones(len(cluster))
    return paired_differences(has_a[:, rows_a], has_b[:, rows_b], cluster, weight, pool)


def _by(
    name: str,
    specs: Sequence[Sweep],
    before: _Trainings,
    after: _Trainings,
    pairs: _Pairs | None,
    changed: Mapping[str, object],
) -> list[GroupDifference]:
    for each in (before, after):
        if name not in each.parameters:
            raise UserError(
                "--by",
                given=name,
                expected=f"one of {', '.join(each.parameters)}",
                mend="name a parameter that both sweeps have",
            )
    if name in changed:
        raise UserError(
            "--by", given=name, expected="a parameter that varies within A and B", mend="it is what is compared already"
        )
    # Trials of B after those of A, so that one set of bins holds both.
    values = dict(zip(before.trial, before.parameters[name], strict=True))
    apart = max(before.trial, default=0) + 1
    values |= {apart + trial: value for trial, value in zip(after.trial, after.parameters[name], strict=True)}
    groups = groups_by(specs, name, values)
    found = (_group_difference(group, specs, apart, before, after, pairs) for group in groups)
    return [each for each in found if each.n]


def _group_difference(
    group: Group,
    specs: Sequence[Sweep],
    apart: int,
    before: _Trainings,
    after: _Trainings,
    pairs: _Pairs | None,
) -> GroupDifference:
    if pairs is not None:
        chosen = [index for index, row in enumerate(pairs.rows_a) if before.trial[row] in group.trials]
        inside = _Pairs(*([rows[each] for each in chosen] for rows in (pairs.rows_a, pairs.rows_b, pairs.cluster)))
        return GroupDifference(group.label, len(chosen), _differences(specs, before, after, inside, [STUCK])[0])
    counts_a, counts_b = _counts_in(group, before, 0), _counts_in(group, after, apart)
    found = unpaired_difference(counts_a, counts_b, pooling(*specs))
    return GroupDifference(group.label, sum(n for n, _ in counts_a + counts_b), found)


def _counts_in(group: Group, trainings: _Trainings, shift: int) -> list[tuple[int, int]]:
    rows = [row for row, trial in enumerate(trainings.trial) if trial + shift in group.trials]
    return _by_trial([trainings.trial[row] for row in rows], [trainings.stuck[row] for row in rows])


def _by_trial(trials: Sequence[int], has: Sequence[bool]) -> list[tuple[int, int]]:
    counts: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for trial, one in zip(trials, has, strict=True):
        counts[trial][0] += 1
        counts[trial][1] += one
    return [(n, k) for n, k in counts.values()]


def change_label(changed: Mapping[str, tuple[Scalar, Scalar]]) -> str:
    """`layer_norm_eps 1e-05 -> 0.001`."""
    return ", ".join(f"{name} {value_label(old)} -> {value_label(new)}" for name, (old, new) in changed.items())
