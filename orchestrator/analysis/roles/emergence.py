"""When roles emerge: the share of trainings in which a role has emerged, by step, also by parameter and layer.

What emergence means: `roles.history`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np

from attnsweep.orchestrator.analysis.labels import check_known
from attnsweep.orchestrator.analysis.onset.hazards import Factor
from attnsweep.orchestrator.analysis.onset.onset import Onset, factors_of, onset_curves
from attnsweep.orchestrator.analysis.onset.share_by_step import CurvePoint, OnsetTimes
from attnsweep.orchestrator.analysis.rates.groups import read_crossing
from attnsweep.orchestrator.analysis.rates.intervals import trials_count_once
from attnsweep.orchestrator.analysis.roles.history import RoleHistory, layer_names_of, layer_title, role_histories
from attnsweep.search_spaces.sweep import Sweep

LAYER = "layer"


@dataclass(frozen=True, slots=True)
class RoleEmergence:
    """When one role of attention heads emerges in one layer.

    Attributes:
        layer: The layer's number; `None` for any layer.
        role: The role's label.
        n_trainings, n_emerged: The number of trainings with enough probes to confirm an emergence, and of those in
            which the role emerged.
        median_step: The step by which the role has emerged in half of the trainings in which it emerges, by the curve;
            `None` if there are none. It is the step of a probe: nothing is known between two probes.
        median_share: `median_step` divided by the number of steps that the trainings took; `None` if they took
            different numbers, or without `median_step`.
        curve: The share of trainings in which the role has emerged, by step, up to 64 points; none without trainings.
    """

    layer: int | None
    role: str
    n_trainings: int
    n_emerged: int
    median_step: int | None
    median_share: float | None
    curve: tuple[CurvePoint, ...]


def role_emergence(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, *, any_layer: bool = False
) -> tuple[RoleEmergence, ...]:
    """Estimates when each role of attention heads emerges in each layer, for all roles that occur in the sweep or could
    occur.

    Failed and diverged trainings, and those without heads, are left out. Under `Sequential` all trials have equal
    weight in the curve.

    Args:
        any_layer: Whether to take the heads of all layers together.
    """
    return emergence_of(role_histories(connection, any_layer=any_layer), spec)


def emergence_of(histories: Sequence[RoleHistory], spec: Sweep) -> tuple[RoleEmergence, ...]:
    """Estimates emergence like `role_emergence`, but from histories that were already read."""
    return tuple(_emergence(history, once_per_trial=trials_count_once(spec)) for history in histories)


def _emergence(history: RoleHistory, *, once_per_trial: bool) -> RoleEmergence:
    onsets, lengths = history.onsets, np.unique(history.n_steps[history.is_followed])
    median = onsets.median_step
    return RoleEmergence(
        history.layer,
        history.role,
        len(onsets.step),
        onsets.n_came,
        median,
        median / max(int(lengths[0]), 1) if median is not None and len(lengths) == 1 else None,
        onsets.curve(once_per_trial=once_per_trial),
    )


def read_emergence(
    connection: duckdb.DuckDBPyConnection, specs: Sequence[Sweep], role: str, names: Sequence[str], layer: int | None
) -> Onset:
    """Estimates when a role of attention heads emerges, for groups of trials.

    Args:
        role: The role's label.
        names: The parameters whose bins are the groups; `layer` among them groups by layer.
        layer: The number of a layer; `None` for any.

    Raises:
        UserError: For a role that cannot occur in this layer, or a parameter that the ledger has no column for.
    """
    histories = role_histories(connection, any_layer=layer is None and LAYER not in names)
    inside = [history for history in histories if layer in (None, history.layer)]
    roles = sorted({history.role for history in inside})
    check_known("role", role, roles, "a workload with attention heads", "see docs/roles.md")
    chosen = [history for history in inside if history.role == role]
    onsets = [history.onsets for history in chosen]
    columns = zip(*((onset.trial, onset.step, onset.came) for onset in onsets), strict=True)
    times = OnsetTimes(*(np.concatenate(column) for column in columns))
    crossing = read_crossing(connection, specs, [name for name in names if name != LAYER])
    factors = {factor.name: factor for factor in factors_of(times, crossing)}
    if LAYER in names:
        titles = layer_names_of(specs[0].workload)
        place = np.repeat(np.arange(len(chosen)), [len(onset.trial) for onset in onsets])
        factors[LAYER] = Factor(LAYER, tuple(layer_title(titles, history.layer) for history in chosen), place)
    ordered, once = tuple(factors[name] for name in names), trials_count_once(*specs)
    return Onset(role, ",".join(names), onset_curves(times, ordered, once), ending_note(chosen), times, ordered, once)


def ending_note(histories: Sequence[RoleHistory]) -> str:
    """Returns the assumption that curves of emergence make if trainings ended before their step budget; else an empty
    text."""
    n_ended = max(
        (int((history.n_steps < history.budget)[history.is_followed].sum()) for history in histories), default=0
    )
    if n_ended == 0:
        return ""
    return (
        f"{n_ended:,} trainings ended before their step budget and are censored there, as if the role would have "
        "emerged in them later as often as in the others"
    )
