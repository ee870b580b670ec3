"""Compares two sweeps on pairs of trainings with equal configuration and seed or, without enough pairs, on all."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.analysis.difference import (
    RateDifference,
    difference_label,
    paired_difference,
    unpaired_difference,
)
from attnsweep.orchestrator.analysis.labels import check_known, value_label
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.analysis.rates.bins import Groups, group_trials, names_of
from attnsweep.orchestrator.analysis.rates.by_parameter import Ending, read_ending
from attnsweep.orchestrator.analysis.rates.intervals import pooling
from attnsweep.orchestrator.analysis.tables import show, table_of
from attnsweep.orchestrator.ledger.views import IS_JUDGED, identifier, param_column
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.search_spaces.dimensions import Categorical, Scalar
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError

_ENOUGH_PAIRS = 0.5
"""Pairs are compared if at least this share of the smaller sweep's trainings belongs to one."""


@dataclass(frozen=True, slots=True)
class SweepComparison:
    """How the stuck rate and the rate of each outcome differ between sweeps A and B, with intervals.

    Attributes:
        n_pairs: Pairs of trainings with equal configuration and seed, neither of which failed or was pruned.
        n_configurations: Distinct configurations among the pairs.
        changed_parameters: Those that have one value in all of A and another in all of B. The trainings of a pair are
            equal in all others that both sweeps have.
        spaces: The parameters whose ranges or choices differ.
        samplers: Those of A and of B; empty if they are equal.
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
        what = Ending(self.rate_of).share_label
        if self.rate.difference is None:
            return f"{what}: nothing to compare, all trainings of one sweep failed, were pruned or go on"
        shown = "" if self.difference_is_shown else ": no difference is shown"
        return f"{what} changed by {difference_label(self.rate)}{shown}"

    def lines(self) -> Iterator[str]:
        yield f"A {self.a}"
        yield f"B {self.b}"
        if changed := self.changed_parameters:
            pairs = (f"{name} {value_label(old)} -> {value_label(new)}" for name, (old, new) in changed.items())
            yield f"differ in {', '.join(pairs)}"
        if self.spaces:
            yield f"ranges differ in {', '.join(self.spaces)}{'' if self.paired else ': each rate is over its own'}"
        if self.samplers:
            yield f"samplers differ, {' -> '.join(self.samplers)}{'' if self.paired else ': each chose its trials'}"
        if self.paired:
            configurations = f"of {self.n_configurations} trials"
            yield f"{self.n_pairs} pairs of trainings with equal parameters and seed, {configurations}"
        else:
            yield f"not paired: {self.n_pairs} trainings have a counterpart with equal parameters and seed"

    def print(self, console: Console) -> None:
        for line in self.lines():
            console.print(line, soft_wrap=True, markup=False, highlight=False)
        show(self.table(), console)
        console.print(self.sentence(), soft_wrap=True, markup=False, highlight=False)

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


def compare(
    a: SweepData | PlaceName | str,
    b: SweepData | PlaceName | str,
    *,
    by: str | Sequence[str] | None = None,
    outcome: str = "stuck",
) -> SweepComparison:
    """Compares a rate, such as the stuck rate, between two sweeps, opened or given by their directories. If enough
    trainings have a partner of equal configuration and seed in the other sweep, only these pairs are compared.

    Args:
        by: A parameter, or two: the rates are also compared in each bin, or in each cell of the two.
        outcome: The rate to compare: of an outcome such as `degenerate_zero`; `stuck` for all those that count as
            stuck.
    """
    a, b = (sweep if isinstance(sweep, SweepData) else SweepData.open(sweep) for sweep in (a, b))
    workloads = [data.specs[0].workload for data in (a, b)]
    if workloads[0] != workloads[1]:
        given, expected = (f"a sweep of the workload {name}" for name in reversed(workloads))
        raise UserError("B", given=given, expected=expected, fix="give two sweeps of one workload")
    _check_outcome(a, b, outcome)
    before, after = _read(a), _read(b)
    # The trials of B are numbered after those of A.
    n_numbers_of_a = (pc.max(before["trial"]).as_py() or 0) + 1
    after = after.set_column(0, "trial", pc.add(after["trial"], n_numbers_of_a))
    values = [{name: set(each[f"param_{name}"].to_pylist()) for name in _parameters(each)} for each in (before, after)]
    shared = [name for name in values[0] if name in values[1]]
    changed = {
        name: (*values[0][name], *values[1][name])
        for name in shared
        if len(values[0][name]) == len(values[1][name]) == 1 and values[0][name] != values[1][name]
    }
    shared = [name for name in shared if name not in changed]
    pairs = _pairs(before, after, shared)
    paired = pairs[0].num_rows > 0 and pairs[0].num_rows >= _ENOUGH_PAIRS * min(before.num_rows, after.num_rows)
    compared = _Compared((*a.specs, *b.specs), *(pairs if paired else (before, after)), paired)
    n_of_outcome = Counter(before["outcome"].to_pylist())
    seen = {*n_of_outcome, *after["outcome"].to_pylist()}
    outcomes = sorted(seen, key=lambda name: (-n_of_outcome[name], name))
    rate = compared.difference(outcome)
    groups = _groups(names_of(by, "--by"), compared.specs, (before, after), changed)
    cells = {" × ".join(groups.label(place).values()): trials for place, trials in groups.cells().items() if place}
    differences = {label: compared.within(trials).difference(outcome) for label, trials in cells.items()}
    samplers = tuple(", ".join(dict.fromkeys(spec.sampler for spec in data.specs)) for data in (a, b))
    return SweepComparison(
        a=", ".join(sweep.sweep for sweep in a.directories),
        b=", ".join(sweep.sweep for sweep in b.directories),
        paired=paired,
        n_pairs=pairs[0].num_rows,
        n_configurations=len(pc.unique(pairs[0]["configuration"])),
        changed_parameters=changed,
        spaces=tuple(name for name in shared if _declared(a.specs, name) != _declared(b.specs, name)),
        samplers=samplers if samplers[0] != samplers[1] else (),
        rate_of=outcome,
        rate=rate,
        difference_is_shown=rate.is_shown,
        stuck_rate=compared.difference("stuck"),
        outcomes={name: compared.difference(name) for name in outcomes},
        by=groups.names,
        groups={label: each for label, each in differences.items() if each.a.n + each.b.n},
    )


@dataclass(frozen=True, eq=False, slots=True)
class _Compared:
    """The trainings of A and B that are compared; `paired` ones are in the same row."""

    specs: Sequence[Sweep]
    a: pa.Table
    b: pa.Table
    paired: bool

    def difference(self, name: str) -> RateDifference:
        pool = pooling(*self.specs)
        if not self.paired:
            return unpaired_difference(_counts(self.a, name), _counts(self.b, name), pool)
        cluster = np.unique(self.a["configuration"].to_numpy(), return_inverse=True)[1]
        return paired_difference(_has(self.a, name), _has(self.b, name), cluster, pool)

    def within(self, trials: Sequence[int]) -> "_Compared":
        in_a = np.isin(self.a["trial"].to_numpy(), trials)
        in_b = in_a if self.paired else np.isin(self.b["trial"].to_numpy(), trials)
        return replace(self, a=self.a.filter(pa.array(in_a)), b=self.b.filter(pa.array(in_b)))


def _has(table: pa.Table, name: str) -> NDArray[np.bool_]:
    """Which trainings have an outcome, or are stuck."""
    has = table["stuck"] if name == "stuck" else pc.equal(table["outcome"], name)
    return np.asarray(has.to_numpy(zero_copy_only=False), np.bool_)


def _counts(table: pa.Table, name: str) -> NDArray[np.int64]:
    """For each trial its trainings, and those that have it: (n_trials, 2)."""
    trial_R = np.unique(table["trial"].to_numpy(), return_inverse=True)[1]
    return np.stack([np.bincount(trial_R), np.bincount(trial_R, _has(table, name)).astype(np.int64)], axis=1)


def _check_outcome(a: SweepData, b: SweepData, outcome: str) -> None:
    """Raises UserError unless one of the sweeps knows it."""
    with a.reading() as connection, suppress(UserError):
        read_ending(connection, outcome)
        return
    with b.reading() as connection:
        read_ending(connection, outcome)


def _read(data: SweepData) -> pa.Table:
    """The trainings that neither failed nor were pruned."""
    with data.reading() as connection:
        return connection.sql(
            "select trial, replicate, seed, outcome::varchar as outcome, stuck, columns('param_.*') "
            f"from trainings where {IS_JUDGED} order by trial, replicate"
        ).to_arrow_table()


def _parameters(table: pa.Table) -> list[str]:
    return [name.removeprefix("param_") for name in table.column_names if name.startswith("param_")]


def _declared(specs: Sequence[Sweep], name: str) -> set[str]:
    """A parameter's ranges and choices as texts, equal for choices in any order."""
    found = (spec.parameters().get(name) for spec in specs)
    return {repr(sorted(map(repr, each.choices)) if isinstance(each, Categorical) else each) for each in found}


def _pairs(before: pa.Table, after: pa.Table, shared: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Trainings of equal seed and parameters, in rows of one number; A's with a column `configuration`. If a sweep has
    several equal ones, `copy` numbers them, and they pair in turn."""
    keys = [identifier("seed"), *(param_column(name) for name in shared)]
    same = " and ".join(f"a.{key} is not distinct from b.{key}" for key in ["copy", *keys])
    configuration = ", ".join(f"a.{key}" for key in keys[1:]) or "1"
    with duckdb.connect() as connection:
        for name, table in (("a", before), ("b", after)):
            connection.register(f"{name}_rows", table.append_column("row", pa.array(range(table.num_rows))))
            copies = f"row_number() over (partition by {', '.join(keys)} order by row) as copy"
            connection.execute(f"create temp view {name} as select *, {copies} from {name}_rows")
        found = connection.sql(
            f"select a.row as a, b.row as b, dense_rank() over (order by {configuration}) as configuration"
            f" from a join b on {same} order by a.row"
        ).to_arrow_table()
    return before.take(found["a"]).append_column("configuration", found["configuration"]), after.take(found["b"])


def _groups(
    names: Sequence[str], specs: Sequence[Sweep], sides: Sequence[pa.Table], changed: Mapping[str, object]
) -> Groups:
    trials = [trial for side in sides for trial in side["trial"].to_pylist()]
    values = {}
    for name in names:
        for side in sides:
            check_known("--by", name, _parameters(side), "", "name a parameter that both sweeps have")
        if name in changed:
            fix = "leave it out of --by: comparing A with B compares its two values"
            raise UserError("--by", given=name, expected="a parameter that varies within A and B", fix=fix)
        of_training = [value for side in sides for value in side[f"param_{name}"].to_pylist()]
        values[name] = dict(zip(trials, of_training, strict=True))
    return group_trials(specs, values, {*trials})
