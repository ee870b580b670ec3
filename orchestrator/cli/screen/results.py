"""Prints comparisons of sweeps, explanations of stuck trainings, and tables of heads."""

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from attnsweep.workloads.vocabulary import ROLES

if TYPE_CHECKING:
    from attnsweep.orchestrator.analysis.comparison import SweepComparison
    from attnsweep.orchestrator.inspection.heads import Head, Heads
    from attnsweep.orchestrator.inspection.why import Why


def print_comparison(comparison: "SweepComparison", console: Console) -> None:
    from attnsweep.orchestrator.analysis.tables import show

    for line in comparison.lines():
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    show(comparison.table(), console)
    console.print(comparison.sentence(), soft_wrap=True, markup=False, highlight=False)


def print_why(analysis: "Why", console: Console) -> None:
    points = analysis.curve
    course = "; ".join(f"{value:.3g} at step {step}" for step, value in (*points[:1], *points[-1:]))
    for line in (*analysis.lines(), f"loss   {course}", f"replay {analysis.replay_command}"):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


_DECIDING_SCORES = tuple(role.score for role in ROLES.values() if role.score)
_MOST_SCORES = 5
_LEGEND_OF_HEADS = """\
scores: at the last probe, as the ledger has them (all of them: --json). nearest: the structure of docs/roles.md
that the map is nearest to in z, its distance in standard deviations of shuffled rows; none: no z below -2.
D/n: the exact distance to it per token."""


def print_heads(heads: "Heads", console: Console) -> None:
    if not sys.stdout.isatty():
        # A pipe has no terminal width, so the table may be as wide as needed.
        console.width = 200
    row = heads.row
    detail = f" ({row['outcome_detail']})" if row["outcome_detail"] else ""
    title = f"{heads.name}  {row['outcome']}{detail}; sentence {heads.maps.number} of {heads.maps.n_sentences}:"
    for line in filter(None, (title, heads.maps.text, heads.note)):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    measured = list(dict.fromkeys(name for head in heads.heads for name in head.scores))
    names = sorted(measured, key=lambda name: name not in _DECIDING_SCORES)[:_MOST_SCORES]
    table = Table("layer", "head", "role", "nearest", "D/n", "z", *names, box=None, header_style="bold")
    for head in heads.heads:
        scores = (head.scores.get(name) for name in names)
        shown = ("-" if value is None else f"{value:.2f}" for value in scores)
        table.add_row(heads.layer_names[head.layer], str(head.head), head.role or "-", *_structure(head), *shown)
    console.print(table)
    console.print(_LEGEND_OF_HEADS, soft_wrap=True, markup=False, highlight=False)


def _structure(head: "Head") -> tuple[str, str, str]:
    structure = head.structure
    if structure is None or structure.family == "none":
        return "-" if structure is None else "none", "-", "-"
    return structure.label, f"{structure.distance[structure.family]:.2f}", f"{structure.z[structure.family]:.1f}"
