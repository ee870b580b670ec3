"""Prints the heads of a training as a short table."""

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
"""Scores that decide roles, in the order of their columns."""
_MOST_SCORES = 5
_LEGEND = """\
scores: at the last probe, as the ledger has them (all of them: --json). nearest: the structure of docs/roles.md
that the map is nearest to in z, its distance in standard deviations of shuffled rows; none: no z below -2.
D/n: the exact distance to it per token."""


def print_heads(heads: Heads, console: Console) -> None:
    """Prints one row per attention head: its role, its nearest structure and its scores."""
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
            heads.layer_title(head.layer),
            str(head.head),
            head.role or "-",
            *_structure(head),
            *(_score(head, name) for name in names),
        )
    console.print(table)
    console.print(_LEGEND, soft_wrap=True, markup=False, highlight=False)


def _shown(heads: Heads) -> list[str]:
    measured = list(dict.fromkeys(name for head in heads.heads for name in head.scores))
    return ([name for name in _SHOWN if name in measured] or measured)[:_MOST_SCORES]


def _structure(head: Head) -> tuple[str, str, str]:
    structure = head.structure
    if structure is None:
        return "-", "-", "-"
    if structure.family == "none":
        return "none", "-", "-"
    return structure.label, f"{structure.distance[structure.family]:.2f}", f"{structure.z[structure.family]:.1f}"


def _score(head: Head, name: str) -> str:
    value = head.scores.get(name)
    if value is None:
        return "-"
    offset = head.scores.get("positional_offset")
    at = f" at {offset:+.0f}" if name == "positional_share" and offset is not None else ""
    return f"{value:.2f}{at}"
