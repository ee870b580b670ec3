"""The heads of a training as a short table on a terminal."""

import sys

from rich.console import Console
from rich.table import Table

from attnsweep.orchestrator.inspection.head import Head
from attnsweep.orchestrator.inspection.heads import Heads

_SHOWN = (
    "positional_share",
    "syntactic_gain",
    "rare_token",
    "alignment",
    "previous_token",
    "induction",
    "first_attention",
    "attention_entropy",
    "solution_1",
    "solution_2",
    "solution_3",
)
"""Scores that roles follow from, in the order of their columns."""
_MOST_SCORES = 5
_LEGEND = """\
scores: at the last probe, as the ledger has them (all of them: --json). nearest: the structure of docs/roles.md
that the map is nearest to in z, its distance in standard deviations of shuffled rows; none: no z below -2.
D/n: the exact distance to it per token."""


def print_heads(found: Heads, console: Console) -> None:
    """Prints a row for each head."""
    if not sys.stdout.isatty():
        # A pipe has no width that the table must fit.
        console.width = 200
    row = found.row
    detail = f" ({row['outcome_detail']})" if row["outcome_detail"] else ""
    lines = [
        f"{found.name}  {row['outcome']}{detail}; sentence {found.maps.number} of {found.maps.n_sentences}:",
        found.maps.text,
    ]
    for line in [*lines, *([found.note] if found.note else [])]:
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    names = _shown(found)
    table = Table("layer", "head", "role", "nearest", "D/n", "z", *names, box=None, header_style="bold")
    for head in found.heads:
        table.add_row(
            found.layer_title(head.layer),
            str(head.head),
            head.role or "-",
            *_structure(head),
            *(_score(head, name) for name in names),
        )
    console.print(table)
    console.print(_LEGEND, soft_wrap=True, markup=False, highlight=False)


def _shown(found: Heads) -> list[str]:
    there = list(dict.fromkeys(name for head in found.heads for name in head.scores))
    return ([name for name in _SHOWN if name in there] or there)[:_MOST_SCORES]


def _structure(head: Head) -> tuple[str, str, str]:
    found = head.structure
    if found is None:
        return "-", "-", "-"
    if found.family == "none":
        return "none", "-", "-"
    return found.label, f"{found.distance[found.family]:.2f}", f"{found.z[found.family]:.1f}"


def _score(head: Head, name: str) -> str:
    value = head.scores.get(name)
    if value is None:
        return "-"
    offset = head.scores.get("positional_offset")
    at = f" at {offset:+.0f}" if name == "positional_share" and offset is not None else ""
    return f"{value:.2f}{at}"
