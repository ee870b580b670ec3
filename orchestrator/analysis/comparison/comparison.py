"""The comparison of two sweeps as an answer: numbers, a sentence, a table and a figure."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from attnsweep.orchestrator.analysis.answer import DrawnAnswer, Record, table
from attnsweep.orchestrator.analysis.comparison.difference import RateDifference, difference_label
from attnsweep.orchestrator.analysis.labels import value_label
from attnsweep.orchestrator.analysis.rates.ending import Ending
from attnsweep.orchestrator.analysis.rates.groups import by_label
from attnsweep.orchestrator.analysis.rates.interaction import InteractionTest
from attnsweep.search_spaces.dimensions import Scalar

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class GroupDifference(Record):
    """The difference between two sweeps' rates among the trials in one bin of a parameter, or in one cell of two
    parameters.

    Attributes:
        label: The label of the bin or cell.
        n: The number of pairs in it; without pairs, of trainings of both sweeps.
        rate: The difference.
    """

    label: str
    n: int
    rate: RateDifference

    json_keys = ("label", "n", "**rate")


@dataclass(frozen=True, slots=True, repr=False)
class SweepComparison(DrawnAnswer, Record):
    """The differences in rates between sweep A and sweep B, with intervals.

    Attributes:
        a, b: The sweeps.
        n_pairs: The number of pairs of trainings with equal configuration and seed, neither of which failed.
        n_configurations: The number of distinct configurations of the pairs.
        paired: Whether only the pairs are compared.
        changed: Parameters with one value throughout A and another throughout B; pairs are equal in all others.
        ending: Which rate is compared: that of stuck trainings, or that of one outcome.
        rate: The difference in this rate.
        stuck: The difference in the stuck rate.
        outcomes: The difference in the rate of each outcome that occurs, the most frequent in A first.
        by: The parameter whose bins are the groups, or two with a comma between them; empty if none was asked for.
        groups: The difference in the rate in each group.
        by_test: The test whether the change, as a factor of the odds, differs between groups; `None` without groups.
        machines: The types of machine that trained A and B, in words; empty if there is one type only.
    """

    a: str
    b: str
    n_pairs: int
    n_configurations: int
    paired: bool
    changed: Mapping[str, tuple[Scalar, Scalar]]
    ending: Ending
    rate: RateDifference
    stuck: RateDifference
    outcomes: Mapping[str, RateDifference]
    by: str
    groups: tuple[GroupDifference, ...]
    by_test: InteractionTest | None = None
    machines: tuple[str, ...] = ()

    json_keys = (
        *("a", "b", "paired", "n_pairs", "n_configurations", "changed_parameters=_changed_values", "rate_of=ending"),
        *("rate", "difference_is_shown=rate.is_shown", "stuck_rate=stuck", "outcomes"),
        *("by=_named", "groups", "by_test", "machines"),
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
        """Says by how much the rate changed, `stuck rate changed by +0.12 [0.08, 0.16]`, and whether the data show a
        change."""
        if self.rate.value is None:
            return f"{self.ending.share_label}: nothing to compare, every training failed in one of the sweeps"
        shown = "" if self.rate.is_shown else ": no difference is shown"
        return f"{self.ending.share_label} changed by {difference_label(self.rate)}{shown}"

    def how(self) -> str:
        """Says whether the trainings were compared in pairs, and how many there are."""
        if self.paired:
            return (
                f"{self.n_pairs} pairs of trainings with equal parameters and seed, of {self.n_configurations} trials"
            )
        return f"not paired: {self.n_pairs} trainings have a counterpart with equal parameters and seed"

    def to_arrow(self) -> pa.Table:
        """Returns one row for each compared rate: the stuck rate, each outcome, the detail if one was named, and each
        group.

        The columns are both rates, their difference and its interval.
        """
        rows: list[tuple[str, str, RateDifference]] = [("stuck rate", "", self.stuck)]
        rows += [("outcome", outcome, difference) for outcome, difference in self.outcomes.items()]
        if self.ending.detail is not None:
            rows.append((self.ending.share_label, "", self.rate))
        rows += [(f"{self.ending.share_label} by {self.by}", group.label, group.rate) for group in self.groups]
        columns = {"what": str, "label": str} | dict.fromkeys(("a", "b", "difference", "low", "high", "p"), float)
        return table(
            columns,
            (
                (what, label, diff.before.share, diff.after.share, diff.value, diff.low, diff.high, diff.p)
                for what, label, diff in rows
            ),
        )

    def plot(self) -> "Figure":
        """Draws the differences in the stuck rate, in the rate of each outcome and in each group, with 95%
        intervals."""
        from attnsweep.orchestrator.analysis.figures.panels import WIDTH, new_figure
        from attnsweep.orchestrator.analysis.figures.style import (
            BLUE,
            GREY,
            VERMILION,
            draw_interval,
            figure_text,
            house_style,
        )

        rows = [("stuck rate", self.stuck)]
        rows += [(figure_text(outcome.replace("_", " ")), difference) for outcome, difference in self.outcomes.items()]
        name = figure_text(self.ending.share_label)
        if self.ending.detail is not None:
            rows.append((name, self.rate))
        rows += [(f"{name}, {by_label(self.by)} {figure_text(group.label, 40)}", group.rate) for group in self.groups]
        with house_style():
            figure, panel = new_figure(1.5 * WIDTH, 1.2 + 0.3 * len(rows), grid="x")
            panel.axvline(0, color=GREY, linewidth=0.8)
            for row, (_, diff) in enumerate(rows):
                if diff.interval is not None:
                    colour, marker = (VERMILION, "s") if diff.is_shown else (BLUE, "o")
                    draw_interval(panel, row, diff.interval, "x", fmt=marker, color=colour)
            panel.set_yticks(range(len(rows)), [label for label, _ in rows])
            panel.invert_yaxis()
            panel.set_xlabel("change of the share, B less A (95% interval)")
            figure.suptitle("\n".join(textwrap.wrap(self.how(), 60)), fontsize="medium")
        return figure


def change_label(changed: Mapping[str, tuple[Scalar, Scalar]]) -> str:
    """Formats the changed parameters: `layer_norm_eps 1e-05 -> 0.001`."""
    return ", ".join(f"{name} {value_label(old)} -> {value_label(new)}" for name, (old, new) in changed.items())
