"""When roles emerge: the share of trainings in which a role has emerged, by step.

A role has emerged in a training at the first probe from which some head of the layer has it at every later probe; it
need not be the same head. The one definition of this is the SQL of `roles.history`.
"""

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
        n_trainings, n_emerged: Trainings that count, and those in which the role emerged.
        median_step: The median step of emergence among those in which it emerged; `None` if there are none. The step is
            that of the first probe that shows the role: nothing is known between two probes.
        median_share: The median of that step divided by the number of steps that the training took.
        curve: The share of trainings in which the role has emerged, by step, up to 64 points.
    """

    layer: int | None
    role: str
    n_trainings: int
    n_emerged: int
    median_step: float | None
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
    onsets = history.onsets
    share = history.step[history.emerged] / np.maximum(history.n_steps[history.emerged], 1)
    return RoleEmergence(
        history.layer,
        history.role,
        len(history.step),
        onsets.n_came,
        onsets.median_step,
        float(np.median(share)) if len(share) else None,
        onsets.curve(once_per_trial=once_per_trial),
    )
