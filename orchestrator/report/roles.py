"""Roles of attention heads for the report: the share of heads in each role, and how much sooner roles emerge."""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from attnsweep.orchestrator.analysis.hazards import HazardRatios
from attnsweep.orchestrator.analysis.onset import onset_by
from attnsweep.orchestrator.analysis.rates.bins import read_crossing
from attnsweep.orchestrator.analysis.rates.intervals import Pooling, Rate, trials_count_once
from attnsweep.orchestrator.analysis.role_emergence import ending_note, role_histories
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.vocabulary import NO_ROLE, ROLES

_COMPOSITION = """
with judged as (select trial, replicate from trainings where outcome not in ('failed', 'diverged', 'pruned')),
last as (select trial, replicate, max(step) as step from heads semi join judged using (trial, replicate) group by all),
ended as (select trial, layer, role from heads semi join last using (trial, replicate, step))
select layer, role, trial, count(*) from ended group by all order by all
"""


@dataclass(frozen=True, slots=True)
class RoleShare:
    """The share of a layer's attention heads that have one role at the last probe. `none` counts as a role."""

    layer: int
    role: str
    rate: Rate


def role_composition(connection: duckdb.DuckDBPyConnection, pool: Pooling) -> tuple[RoleShare, ...]:
    """Computes the share of attention heads in each role, by layer. Intervals allow for dependence between heads of one
    trial.

    Args:
        connection: From `Ledger.connect`.
        pool: How to combine trials: from `pooling`.
    """
    sizes: dict[int, dict[int, int]] = {}
    counts: dict[tuple[int, str], dict[int, int]] = {}
    for layer, role, trial, n in connection.execute(_COMPOSITION).fetchall():
        trials = sizes.setdefault(layer, {})
        trials[trial] = trials.get(trial, 0) + n
        counts.setdefault((layer, role), {})[trial] = n
    roles = sorted({role for _, role in counts}, key=_role_order)
    return tuple(
        RoleShare(layer, role, pool([(n, counts.get((layer, role), {}).get(trial, 0)) for trial, n in trials.items()]))
        for layer, trials in sizes.items()
        for role in roles
    )


def _role_order(role: str) -> tuple[bool, int, str]:
    known = list(ROLES)
    return role == NO_ROLE, known.index(role) if role in known else len(known), role


@dataclass(frozen=True, slots=True)
class RoleHazards:
    """The hazard ratios, by parameter, of the emergence of one role in one layer."""

    layer: int | None
    hazards: HazardRatios


def read_role_hazards(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, names: Sequence[str]
) -> tuple[tuple[RoleHazards, ...], str]:
    """Estimates the hazard ratios of each role that emerges somewhere. Also returns the `ending_note` on an assumption
    of these estimates.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
        names: The parameters whose bins are compared, at most two; none gives no ratios.
    """
    histories, crossing = role_histories(connection), read_crossing(connection, [spec], names)
    once = trials_count_once(spec)
    onsets = (
        (history.layer, onset_by(history.role, history.onsets, crossing, once_per_trial=once)) for history in histories
    )
    hazards = tuple(
        RoleHazards(layer, onset.hazard_ratios())
        for layer, onset in onsets
        if names and any(curve.n_came for curve in onset.curves)
    )
    return hazards, ending_note(histories)
