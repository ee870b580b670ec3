"""What heads came to do: the share of heads in each role by layer, and when roles emerge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from orchestrator.analysis.figures import draw_emergence
from orchestrator.analysis.intervals import Rate, pooled_rate
from orchestrator.analysis.role_findings import RoleFindings
from orchestrator.analysis.role_history import NO_ROLE
from orchestrator.report.labels import clipped
from orchestrator.report.style import (
    LABEL_SIZE,
    ROLE_COLOURS,
    TICK_SIZE,
    figure_text,
    new_figure,
    role_colour,
    scale_steps,
    tidy,
)

_DASHES = ("-", "--", "-.", ":")

_COMPOSITION = """
with judged as (select trial, replicate from trainings where outcome not in ('failed', 'diverged')),
last as (select trial, replicate, max(step) as step from heads semi join judged using (trial, replicate) group by all),
ended as (select trial, layer, role from heads semi join last using (trial, replicate, step))
select layer, role, trial, count(*) from ended group by all order by all
"""


@dataclass(frozen=True, slots=True)
class RoleShare:
    """Of a layer's heads at the last probe of their trainings, those with one role; `none` is a role here."""

    layer: int
    role: str
    rate: Rate


def role_composition(connection: duckdb.DuckDBPyConnection) -> tuple[RoleShare, ...]:
    """Every role that occurs in each layer; heads of one trial are not taken as independent.

    Args:
        connection: From `Ledger.connect`.
    """
    sizes: dict[int, dict[int, int]] = {}
    counts: dict[tuple[int, str], dict[int, int]] = {}
    for layer, role, trial, n in connection.execute(_COMPOSITION).fetchall():
        trials = sizes.setdefault(layer, {})
        trials[trial] = trials.get(trial, 0) + n
        counts.setdefault((layer, role), {})[trial] = n
    roles = sorted({role for _, role in counts}, key=_role_order)
    return tuple(
        RoleShare(
            layer, role, pooled_rate([(n, counts.get((layer, role), {}).get(trial, 0)) for trial, n in of.items()])
        )
        for layer, of in sizes.items()
        for role in roles
    )


def _role_order(role: str) -> tuple[bool, int, str]:
    known = list(ROLE_COLOURS)
    return role == NO_ROLE, known.index(role) if role in known else len(known), role


def role_names(composition: Sequence[RoleShare]) -> list[str]:
    """The roles, each once."""
    return list(dict.fromkeys(each.role for each in composition))


def composition_figure(composition: Sequence[RoleShare], roles: RoleFindings) -> Figure:
    """The share of heads in each role by layer, with 95% intervals."""
    layers = list(dict.fromkeys(each.layer for each in composition))
    names = role_names(composition)
    figure, panel = new_figure(height=1.05 + 0.2 * len(layers) * max(len(names), 2))
    for each in composition:
        if each.rate.share is None or each.rate.low is None or each.rate.high is None:
            continue
        at = layers.index(each.layer) + 0.7 * ((names.index(each.role) + 0.5) / len(names) - 0.5)
        colour = role_colour(each.role, names)
        share, low, high = each.rate.share, each.rate.low, each.rate.high
        panel.barh(at, share, height=0.6 / len(names), color=colour, alpha=0.85, linewidth=0, label=each.role)
        bounds = [[max(share - low, 0.0)], [max(high - share, 0.0)]]
        panel.errorbar(share, at, xerr=bounds, fmt="none", ecolor="black", elinewidth=0.9, capsize=1.5)
    panel.set_yticks(range(len(layers)), [figure_text(roles.layer_title(layer)) for layer in layers])
    panel.set_ylim(len(layers) - 0.5, -0.5)
    panel.set_xlim(0, 1)
    panel.set_xlabel("share of heads at the last probe", fontsize=LABEL_SIZE)
    tidy(panel, "x")
    bars, labels = panel.get_legend_handles_labels()
    _legend(figure, dict(zip(labels, bars, strict=True)))
    return figure


def emergence_figures(roles: RoleFindings, names: Sequence[str]) -> list[tuple[str, Figure]]:
    """The share of trainings in which each role has come to stay, by step: a figure for each layer, 95% bands.

    Args:
        roles: At least one.
        names: All roles of the sweep, for their colours.
    """
    drawn = []
    for layer in dict.fromkeys(each.layer for each in roles.emergence):
        inside = [each for each in roles.emergence if each.layer == layer]
        figure, panel = new_figure()
        for index, each in enumerate(inside):
            draw_emergence(panel, each, role_colour(each.role, list(names)), _DASHES[index % len(_DASHES)])
        panel.set_ylim(-0.03, 1.03)
        panel.set_ylabel("trainings with the role", fontsize=LABEL_SIZE)
        scale_steps(panel, sorted({point.step for each in inside for point in each.curve}))
        title = roles.layer_title(layer)
        panel.set_title(f"{figure_text(title)}, {max(each.n_trainings for each in inside):,} trainings", fontsize=9)
        tidy(panel)
        _legend(figure, {str(line.get_label()): line for line in panel.get_lines()})
        drawn.append((title, figure))
    return drawn


def _legend(figure: Figure, handles: Mapping[str, Artist]) -> None:
    names = [figure_text(clipped(name, 20).replace("_", " ")) for name in handles]
    figure.legend(handles.values(), names, loc="outside lower center", ncols=4, fontsize=TICK_SIZE - 1, frameon=False)
