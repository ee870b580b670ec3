"""When roles emerge: the share of trainings in which a role has emerged, by step. What that means: `roles.history`."""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np

from attnsweep.orchestrator.analysis.onset.share_by_step import CurvePoint
from attnsweep.orchestrator.analysis.rates.intervals import trials_count_once
from attnsweep.orchestrator.analysis.roles.history import RoleHistory, role_histories
from attnsweep.search_spaces.sweep import Sweep


@dataclass(frozen=True, slots=True)
class RoleEmergence:
    """When one role emerges in one layer.

    Attributes:
        layer: The layer's number; `None` for any layer.
        role: The role's label.
        n_trainings, n_emerged: Trainings with enough probes to confirm an emergence, and those in which the role
            emerged.
        median_step: The step by which half of those in which it emerges have it, by the curve; `None` if there are
            none. The step is that of the first probe that shows the role: nothing is known between two probes.
        median_share: That step divided by the number of steps that the trainings took; `None` too if they differ in it.
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
    """When each role emerges, layer by layer, for all roles that occur in the sweep or could occur.

    Failed and diverged trainings, and those without heads, are left out. Under `Sequential` each trial counts once in
    the curve.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
        any_layer: Whether to take the heads of all layers together.
    """
    return emergence_of(role_histories(connection, any_layer=any_layer), spec)


def emergence_of(histories: Sequence[RoleHistory], spec: Sweep) -> tuple[RoleEmergence, ...]:
    """`role_emergence` from histories that have already been read."""
    return tuple(_emergence(each, once_per_trial=trials_count_once(spec)) for each in histories)


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
