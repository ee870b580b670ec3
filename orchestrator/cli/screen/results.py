"""Prints comparisons of sweeps, explanations of stuck trainings, and tables of heads."""

import math
import sys
from collections.abc import Sequence
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


_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_BLOCKS = 60
_LEAST_SPAN = 0.1


def print_why(analysis: "Why", console: Console) -> None:
    for line in (*analysis.lines(), *_drawn_curve(analysis.curve), f"replay {analysis.replay_command}"):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _drawn_curve(curve: Sequence[tuple[int, float]]) -> list[str]:
    """A loss on a logarithmic axis as block characters, every k-th point where there are too many."""
    points = [(step, value) for step, value in curve if value > 0]
    if not points:
        return []
    chosen = points[:: math.ceil(len(points) / _MOST_BLOCKS)]
    logs = [math.log(value) for _, value in chosen]
    span = max(max(logs) - min(logs), _LEAST_SPAN)
    blocks = "".join(_BLOCKS[int((len(_BLOCKS) - 1) * (log - min(logs)) / span)] for log in logs)
    (first, at_first), (last, at_last) = points[0], points[-1]
    return [f"loss   {blocks}  {at_first:.3g} at step {first} to {at_last:.3g} at {last}, on a logarithmic axis"]


_DECIDING_SCORES = (
    *(role.score for role in ROLES.values() if role.score),
    "alignment",
    "previous_token",
    "induction",
    "first_attention",
    "attention_entropy",
    "solution_1",
    "solution_2",
    "solution_3",
)
"""The scores of heads that decide their roles, in the order of the table's columns."""
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
    lines = [
        f"{heads.name}  {row['outcome']}{detail}; sentence {heads.maps.number} of {heads.maps.n_sentences}:",
        heads.maps.text,
    ]
    for line in [*lines, *([heads.note] if heads.note else [])]:
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    names = _shown(heads)
    table = Table("layer", "head", "role", "nearest", "D/n", "z", *names, box=None, header_style="bold")
    for head in heads.heads:
        table.add_row(
            heads.layer_names[head.layer],
            str(head.head),
            head.role or "-",
            *_structure(head),
            *(_score(head, name) for name in names),
        )
    console.print(table)
    console.print(_LEGEND_OF_HEADS, soft_wrap=True, markup=False, highlight=False)


def _shown(heads: "Heads") -> list[str]:
    measured = list(dict.fromkeys(name for head in heads.heads for name in head.scores))
    return ([name for name in _DECIDING_SCORES if name in measured] or measured)[:_MOST_SCORES]


def _structure(head: "Head") -> tuple[str, str, str]:
    structure = head.structure
    if structure is None:
        return "-", "-", "-"
    if structure.family == "none":
        return "none", "-", "-"
    return structure.label, f"{structure.distance[structure.family]:.2f}", f"{structure.z[structure.family]:.1f}"


def _score(head: "Head", name: str) -> str:
    value = head.scores.get(name)
    if value is None:
        return "-"
    offset = head.scores.get("positional_offset")
    at = f" at {offset:+.0f}" if name == "positional_share" and offset is not None else ""
    return f"{value:.2f}{at}"
