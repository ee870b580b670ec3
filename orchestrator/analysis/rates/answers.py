from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from attnsweep.orchestrator.analysis.answer import DrawnAnswer, table
from attnsweep.orchestrator.analysis.rates.bins import Crossing, by_label
from attnsweep.orchestrator.analysis.rates.by_parameter import Ending, ParameterRates, counts_by_trial
from attnsweep.orchestrator.analysis.rates.intervals import RATE_COLUMNS, Pooling, Rate, pooling, rate_label
from attnsweep.orchestrator.ledger.views import IS_JUDGED, outcomes_of
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.vocabulary import PRUNED

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class CellRate:
    """The rate over the trials in one cell of two parameters; `place` has the numbers of the cell's bins."""

    place: tuple[int, ...]
    labels: tuple[str, ...]
    n_trials: int
    rate: Rate


def cell_rates(
    connection: duckdb.DuckDBPyConnection, crossing: Crossing, ending: Ending, specs: Sequence[Sweep]
) -> tuple[CellRate, ...]:
    """Cells whose trainings all failed or were pruned are left out."""
    counts = {trial: (n, k) for trial, n, k in counts_by_trial(connection, ending=ending) if n}
    pool, rates = pooling(*specs), []
    for place, group in crossing.cells().items():
        inside = [counts[trial] for trial in sorted(group.trials & counts.keys())]
        labels = tuple(labels[at] for labels, at in zip(crossing.bins, place, strict=True))
        if inside:
            rates.append(CellRate(place, labels, len(inside), pool(inside)))
    return tuple(rates)


@dataclass(frozen=True, slots=True, repr=False)
class StuckRates(DrawnAnswer):
    """The rate over all trials, and in the bins of each parameter."""

    overall: Rate
    by_parameter: tuple[ParameterRates, ...]
    ending: Ending
    cells: tuple[CellRate, ...] = ()

    def _in_words(self) -> str:
        by = ", ".join(rates.title for rates in self.by_parameter)
        return f"{self.ending.share_label} {rate_label(self.overall)}{by and f'; by {by}'}"

    def to_arrow(self) -> pa.Table:
        rows: list[tuple[str, str, int | None, Rate]] = [("", "", None, self.overall)]
        rows += [
            (rates.title, bin_.label, bin_.n_trials, bin_.rate) for rates in self.by_parameter for bin_ in rates.bins
        ]
        crossed = " × ".join(rates.title for rates in self.by_parameter)
        rows += [(crossed, " × ".join(cell.labels), cell.n_trials, cell.rate) for cell in self.cells]
        columns = {"parameter": str, "bin": str, "n_trials": int, **RATE_COLUMNS}
        return table(columns, ((*labels, *rate.row) for *labels, rate in rows))

    def plot(self) -> "Figure":
        """One panel per parameter, with 95% intervals; without parameters, the rate over all trials."""
        from attnsweep.orchestrator.analysis.rates.figures import grouped_rates_figure, stuck_rate_figure

        drawn = [rates for rates in self.by_parameter if rates.bins]
        if drawn:
            return stuck_rate_figure(
                drawn, f"{self.ending.share_label} {rate_label(self.overall)}", self.ending.share_label
            )
        return grouped_rates_figure(["all trials"], {"": [self.overall]}, self.ending.share_label)


@dataclass(frozen=True, slots=True, repr=False)
class OutcomeRates(DrawnAnswer):
    """The rate of each outcome in each group of trials.

    Attributes:
        by: The parameter whose bins are the groups, or two with a comma between them; empty for one group of all
            trials.
        rates: For each group the rate of each outcome among its trainings that neither failed nor were pruned.
        bins, places: The labels of the bins of each parameter, and for each group the number of its bin of each
            parameter.
    """

    by: str
    groups: tuple[str, ...]
    outcomes: tuple[str, ...]
    rates: tuple[tuple[Rate, ...], ...]
    n_failed: int
    bins: tuple[tuple[str, ...], ...]
    places: tuple[tuple[int, ...], ...]
    n_pruned: int
    colours: Mapping[str, str]

    def _in_words(self) -> str:
        where = f" in {len(self.groups)} groups by {self.by}" if self.by else ""
        pruned = f"; {self.n_pruned} pruned" if self.n_pruned else ""
        return f"{', '.join(self.outcomes)}{where}{pruned}"

    def most_frequent(self) -> dict[tuple[int, ...], tuple[str, Rate]]:
        """By group, with its rate."""
        leaders = {}
        for place, rates in zip(self.places, self.rates, strict=True):
            known = [(outcome, rate) for outcome, rate in zip(self.outcomes, rates, strict=True) if rate.n]
            if known:
                leaders[place] = max(known, key=lambda pair: pair[1].share or 0.0)
        return leaders

    def to_arrow(self) -> pa.Table:
        """One row per group and outcome: trainings `n`, those with it `k`, the `rate` with its 95% interval."""
        crossed = self.by.split(",") if len(self.bins) > 1 else []
        columns = {"group": str, "outcome": str, **{f"param_{name}": str for name in crossed}, **RATE_COLUMNS}
        rows = []
        for group, place, rates in zip(self.groups, self.places, self.rates, strict=True):
            labels = [self.bins[axis][place[axis]] for axis in range(len(crossed))]
            rows += [(group, outcome, *labels, *rate.row) for outcome, rate in zip(self.outcomes, rates, strict=True)]
        return table(columns, rows)

    def plot(self) -> "Figure":
        """Each outcome's rate with its 95% interval, by group."""
        from attnsweep.orchestrator.analysis.rates.figures import grouped_rates_figure

        if len(self.bins) > 1:
            return self.plot_map()
        names = [name.replace("_", " ") for name in self.outcomes]
        groups = dict(zip(self.groups, self.rates, strict=True))
        return grouped_rates_figure(names, groups, "share of trainings, 95% interval", by_label(self.by))

    def plot_map(self) -> "Figure":
        """The cells of two parameters, each in the colour of its most frequent outcome."""
        from attnsweep.orchestrator.analysis.rates.figures import outcome_map_figure

        return outcome_map_figure(self.by.split(","), self.bins, self.most_frequent(), self.colours)


def outcome_counts(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """The most frequent first."""
    rows = connection.execute("select outcome, count(*) from trainings group by 1 order by 2 desc, 1").fetchall()
    return dict(rows)


def commonest_failure(connection: duckdb.DuckDBPyConnection) -> str | None:
    """The commonest last line of errors, with its count: `4 of 18: ValueError: ...`; `None` if none failed."""
    row = connection.execute(
        r"""
        select count(*), sum(count(*)) over (), string_split(rtrim(error, E' \n'), E'\n')[-1] as line from trainings
        where outcome = 'failed' group by line order by 1 desc, line limit 1
        """
    ).fetchone()
    return f"{row[0]:,} of {row[1]:,}: {(row[2] or '')[:200]}" if row else None


def pruned_note(outcomes: Mapping[str, int]) -> str | None:
    """How many trainings were pruned and so are not counted; `None` if none were."""
    if not (n_pruned := outcomes.get(PRUNED, 0)):
        return None
    return (
        f"pruned: {n_pruned:,} of {sum(outcomes.values()):,} trainings are in no rate; the rates are those of trials"
        " that the pruner let run, not those over the space"
    )


def outcome_rates(connection: duckdb.DuckDBPyConnection, crossing: Crossing, pool: Pooling) -> OutcomeRates:
    totals = outcome_counts(connection)
    n_failed, n_pruned = totals.pop("failed", 0), totals.pop(PRUNED, 0)
    counts: dict[int, dict[str, int]] = {}
    for trial, outcome, count in connection.execute(
        f"select trial, outcome, count(*) from trainings where {IS_JUDGED} group by all"
    ).fetchall():
        counts.setdefault(trial, {})[outcome] = count
    rates, cells = [], crossing.cells()
    for group in cells.values():
        inside = [counts[trial] for trial in sorted(group.trials & counts.keys())]
        rates.append(tuple(pool([(sum(tally.values()), tally.get(name, 0)) for tally in inside]) for name in totals))
    labels = tuple(group.label for group in cells.values())
    colours = {label: outcome.colour for label, outcome in outcomes_of(connection).items()}
    return OutcomeRates(
        crossing.by, labels, tuple(totals), tuple(rates), n_failed, crossing.bins, tuple(cells), n_pruned, colours
    )
