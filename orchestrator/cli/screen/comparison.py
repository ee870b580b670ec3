"""Prints the result of `attnsweep compare`."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from attnsweep.orchestrator.analysis.comparison import SweepComparison, change_label
from attnsweep.orchestrator.analysis.difference import RateDifference, difference_label
from attnsweep.orchestrator.analysis.rates.intervals import Rate, rate_label


def print_comparison(comparison: SweepComparison, console: Console) -> None:
    """Prints both sweeps, the table of differences between their rates, and a sentence that summarizes them."""
    for line in (f"A {comparison.a}", f"B {comparison.b}"):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    if comparison.changed:
        console.print(f"differ in {change_label(comparison.changed)}", soft_wrap=True, markup=False, highlight=False)
    if comparison.machines:
        a, b = comparison.machines
        words = f"trained on machines of several types: A {a}; B {b}: equal trainings may differ in their last bits"
        console.print(words, soft_wrap=True, markup=False, highlight=False)
    console.print(comparison.how(), soft_wrap=True, markup=False, highlight=False)
    rows = {"stuck": comparison.stuck} | dict(comparison.outcomes)
    if comparison.ending.detail is not None:
        rows[comparison.ending.label] = comparison.rate
    console.print(_table("", rows))
    if comparison.by:
        title = comparison.by.replace(",", " × ")
        console.print(_table(title, {group.label: group.rate for group in comparison.groups}))
    if comparison.by_test is not None:
        words = f"Does the change, as a factor of the odds, differ between these groups? {comparison.by_test}"
        console.print(words, soft_wrap=True, markup=False, highlight=False)
    if comparison.rate.p is not None:
        console.print(f"McNemar's exact test, pairs taken as independent: p = {comparison.rate.p:.2g}", highlight=False)
    console.print(comparison.sentence(), soft_wrap=True, markup=False, highlight=False)


def _table(title: str, rows: Mapping[str, RateDifference]) -> Table:
    table = Table(
        Column(Text(title)), "A (95% interval)", "B (95% interval)", "change", "", box=None, header_style="bold"
    )
    for label, difference in rows.items():
        words = (label, _rate(difference.before), _rate(difference.after), difference_label(difference))
        table.add_row(*map(Text, words), "shown" if difference.is_shown else "")
    return table


def _rate(rate: Rate) -> str:
    """Formats a rate without its number of trainings, because that number is the same in every row."""
    return rate_label(rate).partition(" of ")[0]
