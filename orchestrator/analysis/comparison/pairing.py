"""Compares two sweeps: on pairs of the same configuration and seed if there are enough, else on all trainings."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from attnsweep.orchestrator.analysis.comparison.comparison import GroupDifference, SweepComparison
from attnsweep.orchestrator.analysis.comparison.difference import (
    RateDifference,
    paired_differences,
    unpaired_difference,
)
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.analysis.rates.ending import Ending, read_ending
from attnsweep.orchestrator.analysis.rates.groups import Crossing, Group, groups_by, names_of
from attnsweep.orchestrator.analysis.rates.interaction import InteractionTest, interaction_test
from attnsweep.orchestrator.analysis.rates.intervals import pooling, trials_count_once, weights_of_equal_trials
from attnsweep.orchestrator.ledger.sql import IS_JUDGED
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError, did_you_mean

_STUCK, _ENDED = "stuck", "ended"
"""Rates of no single outcome: of the stuck trainings, and of those with the ending that was asked for."""
_ENOUGH_PAIRS = 0.5
"""Pairs are compared if they are at least this share of the smaller sweep. Fewer would leave out most trainings."""

Configuration: TypeAlias = tuple[Scalar, ...]


@dataclass(frozen=True, eq=False, slots=True)
class _Trainings:
    """The trainings of one sweep that did not fail, as columns."""

    trial: Sequence[int]
    seed: Sequence[int]
    outcome: Sequence[str]
    stuck: Sequence[bool]
    ended: Sequence[bool]
    parameters: Mapping[str, Sequence[Scalar]]

    def has(self, thing: str) -> list[bool]:
        """Whether each training has this outcome, is stuck, or has ended as was asked for."""
        columns = {_STUCK: self.stuck, _ENDED: self.ended}
        return list(columns[thing]) if thing in columns else [outcome == thing for outcome in self.outcome]


@dataclass(frozen=True, eq=False, slots=True)
class _Pairs:
    """The rows of A and of B that are pairs, and the number of each pair's configuration."""

    rows_a: Sequence[int]
    rows_b: Sequence[int]
    cluster: Sequence[int]


def compare_sweeps(
    a: SweepData,
    b: SweepData,
    *,
    by: str | Sequence[str] | None = None,
    outcome: str = "stuck",
    detail: str | None = None,
) -> SweepComparison:
    """Compares two opened sweeps: see `attnsweep.orchestrator.analysis.compare`."""
    workloads = [each.directories[0].spec.workload for each in (a, b)]
    if workloads[0] != workloads[1]:
        raise UserError(
            "B",
            given=f"a sweep of {workloads[1]}",
            expected=f"one of {workloads[0]}, as A is",
            fix="compare sweeps of one workload",
        )
    ending = _ending(a, b, outcome, detail)
    before, after = _read(a, ending), _read(b, ending)
    changed = _changed(before, after)
    pairs = _pairs(before, after, changed)
    paired = len(pairs.rows_a) > 0 and len(pairs.rows_a) >= _ENOUGH_PAIRS * min(len(before.trial), len(after.trial))
    outcomes = sorted({*before.outcome, *after.outcome}, key=lambda name: (-list(before.outcome).count(name), name))
    specs = [each.spec for sweep in (a, b) for each in sweep.directories]
    used = pairs if paired else None
    rate, stuck, *others = _differences(specs, before, after, used, [_ENDED, _STUCK, *outcomes])
    crossing = _crossing(names_of(by, "--by"), specs, before, after, changed)
    groups, by_test = ((), None) if not crossing.names else _by(crossing, specs, before, after, used)
    return SweepComparison(
        a=", ".join(each.sweep for each in a.directories),
        b=", ".join(each.sweep for each in b.directories),
        n_pairs=len(pairs.rows_a),
        n_configurations=len(set(pairs.cluster)),
        paired=paired,
        changed=changed,
        ending=ending,
        rate=rate,
        stuck=stuck,
        outcomes=dict(zip(outcomes, others, strict=True)),
        by=crossing.by,
        groups=groups,
        by_test=by_test,
    )


def _ending(a: SweepData, b: SweepData, outcome: str, detail: str | None) -> Ending:
    """What the rate is of. A detail may occur in one of the sweeps only."""
    with a.reading() as connection, suppress(UserError):
        return read_ending(connection, outcome, detail)
    with b.reading() as connection:
        return read_ending(connection, outcome, detail)


def _read(data: SweepData, ending: Ending) -> _Trainings:
    with data.reading() as connection:
        table = connection.sql(
            "select trial, seed, outcome::varchar as outcome, stuck, "
            f"coalesce({ending.condition}, false) as ended, columns('param_.*') "
            f"from trainings where {IS_JUDGED} order by trial, replicate"
        ).to_arrow_table()
    columns = {name: table[name].to_pylist() for name in table.column_names}
    return _Trainings(
        columns.pop("trial"),
        columns.pop("seed"),
        columns.pop("outcome"),
        columns.pop("stuck"),
        columns.pop("ended"),
        {name.removeprefix("param_"): values for name, values in columns.items()},
    )


def _changed(before: _Trainings, after: _Trainings) -> dict[str, tuple[Scalar, Scalar]]:
    """Parameters with one value throughout A and another throughout B: the treatment, which pairing ignores."""
    changed: dict[str, tuple[Scalar, Scalar]] = {}
    for name in before.parameters.keys() & after.parameters.keys():
        old, new = list(dict.fromkeys(before.parameters[name])), list(dict.fromkeys(after.parameters[name]))
        if len(old) == len(new) == 1 and old != new:
            changed[name] = (old[0], new[0])
    return {name: changed[name] for name in before.parameters if name in changed}


def _pairs(before: _Trainings, after: _Trainings, changed: Mapping[str, object]) -> _Pairs:
    shared = [name for name in before.parameters if name in after.parameters and name not in changed]
    # A parameter with one value in all trainings does not distinguish any.
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
) -> tuple[RateDifference, ...]:
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


def _crossing(
    names: Sequence[str],
    specs: Sequence[Sweep],
    before: _Trainings,
    after: _Trainings,
    changed: Mapping[str, object],
) -> Crossing:
    """The bins of these parameters. Trials of B are numbered after those of A, so that one set of bins holds both."""
    apart, axes = _apart(before), []
    for name in names:
        for each in (before, after):
            if name not in each.parameters:
                raise UserError(
                    "--by",
                    given=name,
                    expected=f"one of {', '.join(each.parameters)}",
                    fix=did_you_mean(name, each.parameters, otherwise="name a parameter that both sweeps have"),
                )
        if name in changed:
            raise UserError(
                "--by",
                given=name,
                expected="a parameter that varies within A and B",
                fix="leave it out: A and B differ in this parameter, so it is compared anyway",
            )
        values = dict(zip(before.trial, before.parameters[name], strict=True))
        values |= {apart + trial: value for trial, value in zip(after.trial, after.parameters[name], strict=True)}
        axes.append(tuple(groups_by(specs, name, values)))
    return Crossing(tuple(names), tuple(axes), frozenset([*before.trial, *(apart + trial for trial in after.trial)]))


def _apart(before: _Trainings) -> int:
    return max(before.trial, default=0) + 1


def _by(
    crossing: Crossing, specs: Sequence[Sweep], before: _Trainings, after: _Trainings, pairs: _Pairs | None
) -> tuple[tuple[GroupDifference, ...], InteractionTest]:
    apart, groups = _apart(before), crossing.groups()
    found = (_group_difference(group, specs, apart, before, after, pairs) for group in groups)
    place = {trial: at for at, group in enumerate(groups) for trial in group.trials}
    test = _change_by(place, specs, before, after, pairs)
    return tuple(each for each in found if each.n), test


def _change_by(
    place: Mapping[int, int], specs: Sequence[Sweep], before: _Trainings, after: _Trainings, pairs: _Pairs | None
) -> InteractionTest:
    """Whether the change from A to B interacts with the group, by configuration or, without pairs, by trial."""
    apart, counts = _apart(before), defaultdict[tuple[int, int, int], list[int]](lambda: [0, 0])
    if pairs is not None:
        rows = zip(pairs.rows_a, pairs.rows_b, pairs.cluster, strict=True)
        ends = [
            (sweep, place[before.trial[a]], cluster, ended)
            for a, b, cluster in rows
            for sweep, ended in enumerate((before.ended[a], after.ended[b]))
        ]
    else:
        shifts = ((0, before, 0), (1, after, apart))
        ends = [
            (sweep, place[shift + trial], shift + trial, ended)
            for sweep, each, shift in shifts
            for trial, ended in zip(each.trial, each.ended, strict=True)
        ]
    for sweep, group, cluster, ended in ends:
        counts[sweep, group, cluster][0] += 1
        counts[sweep, group, cluster][1] += ended
    if not counts:
        return InteractionTest(0.0, 0, None, "nothing to compare")
    sweeps, groups, clusters = np.array(list(counts)).T
    n, k = np.array(list(counts.values()), dtype=np.float64).T
    weight = np.full(len(n), n.mean()) if trials_count_once(*specs) else n
    return interaction_test(weight, k / n * weight, sweeps, groups, np.unique(clusters, return_inverse=True)[1])


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
        return GroupDifference(group.label, len(chosen), _differences(specs, before, after, inside, [_ENDED])[0])
    counts_a, counts_b = _counts_in(group, before, 0), _counts_in(group, after, apart)
    found = unpaired_difference(counts_a, counts_b, pooling(*specs))
    return GroupDifference(group.label, sum(n for n, _ in counts_a + counts_b), found)


def _counts_in(group: Group, trainings: _Trainings, shift: int) -> list[tuple[int, int]]:
    rows = [row for row, trial in enumerate(trainings.trial) if trial + shift in group.trials]
    return _by_trial([trainings.trial[row] for row in rows], [trainings.ended[row] for row in rows])


def _by_trial(trials: Sequence[int], has: Sequence[bool]) -> list[tuple[int, int]]:
    counts: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for trial, one in zip(trials, has, strict=True):
        counts[trial][0] += 1
        counts[trial][1] += one
    return [(n, k) for n, k in counts.values()]
