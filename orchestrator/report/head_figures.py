"""What heads came to do: the share of heads in each role by layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.figures.style import (
    ROLE_COLOURS,
    figure_text,
    legend_below,
    new_figure,
    reach,
    role_colour,
    tidy,
)
from attnsweep.orchestrator.analysis.intervals import Rate
from attnsweep.orchestrator.analysis.rates import Pooling
from attnsweep.orchestrator.analysis.roles.findings import RoleFindings
from attnsweep.orchestrator.analysis.roles.history import NO_ROLE

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


def role_composition(connection: duckdb.DuckDBPyConnection, pool: Pooling) -> tuple[RoleShare, ...]:
    """Every role that occurs in each layer; heads of one trial are not taken as independent.

    Args:
        connection: From `Ledger.connect`.
        pool: From `pooling`.
    """
    sizes: dict[int, dict[int, int]] = {}
    counts: dict[tuple[int, str], dict[int, int]] = {}
    for layer, role, trial, n in connection.execute(_COMPOSITION).fetchall():
        trials = sizes.setdefault(layer, {})
        trials[trial] = trials.get(trial, 0) + n
        counts.setdefault((layer, role), {})[trial] = n
    roles = sorted({role for _, role in counts}, key=_role_order)
    return tuple(
        RoleShare(layer, role, pool([(n, counts.get((layer, role), {}).get(trial, 0)) for trial, n in of.items()]))
        for layer, of in sizes.items()
        for role in roles
    )


def _role_order(role: str) -> tuple[bool, int, str]:
    known = list(ROLE_COLOURS)
    return role == NO_ROLE, known.index(role) if role in known else len(known), role


def composition_figure(composition: Sequence[RoleShare], roles: RoleFindings) -> Figure:
    """The share of heads in each role by layer, with 95% intervals."""
    layers = list(dict.fromkeys(each.layer for each in composition))
    names = list(dict.fromkeys(each.role for each in composition))
    figure, panel = new_figure(height=1.05 + 0.2 * len(layers) * max(len(names), 2))
    for each in composition:
        if each.rate.share is None or each.rate.low is None or each.rate.high is None:
            continue
        at = layers.index(each.layer) + 0.7 * ((names.index(each.role) + 0.5) / len(names) - 0.5)
        colour = role_colour(each.role, roles.names)
        share, low, high = each.rate.share, each.rate.low, each.rate.high
        panel.barh(at, share, height=0.6 / len(names), color=colour, alpha=0.85, linewidth=0, label=each.role)
        panel.errorbar(share, at, xerr=reach(share, low, high), fmt="none", ecolor="black", elinewidth=0.9, capsize=1.5)
    panel.set_yticks(range(len(layers)), [figure_text(roles.layer_title(layer)) for layer in layers])
    panel.set_ylim(len(layers) - 0.5, -0.5)
    panel.set_xlim(0, 1)
    panel.set_xlabel("share of heads at the last probe")
    tidy(panel, "x")
    bars, labels = panel.get_legend_handles_labels()
    legend_below(figure, dict(zip(labels, bars, strict=True)))
    return figure
