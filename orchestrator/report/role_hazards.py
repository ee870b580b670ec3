"""How much sooner roles emerge under one setting than under another, layer by layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from attnsweep.orchestrator.analysis.onset.hazards import HazardRatios
from attnsweep.orchestrator.analysis.onset.onset import onset_by
from attnsweep.orchestrator.analysis.rates.groups import read_crossing
from attnsweep.orchestrator.analysis.rates.intervals import trials_count_once
from attnsweep.orchestrator.analysis.roles.emergence import ending_note
from attnsweep.orchestrator.analysis.roles.history import role_histories
from attnsweep.search_spaces.sweep import Sweep


@dataclass(frozen=True, slots=True)
class RoleHazards:
    """The hazard ratios of one role in one layer."""

    layer: int | None
    found: HazardRatios


def read_role_hazards(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, names: Sequence[str]
) -> tuple[tuple[RoleHazards, ...], str]:
    """The ratios for each role that emerges somewhere, and what they assume of trainings that ended early.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
        names: The parameters whose bins are compared, at most two; none gives no ratios.
    """
    histories, crossing = role_histories(connection), read_crossing(connection, [spec], names)
    once = trials_count_once(spec)
    onsets = ((each.layer, onset_by(each.role, each.onsets, crossing, once_per_trial=once)) for each in histories)
    found = tuple(
        RoleHazards(layer, onset.hazard_ratios())
        for layer, onset in onsets
        if names and any(curve.n_came for curve in onset.curves)
    )
    return found, ending_note(histories)
