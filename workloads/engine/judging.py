"""Applies a workload's table of verdicts and its events to measurements. Axes: L training, P probe."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import P, Workload
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.engine.verdicts import Verdicts, VerdictTable, where_held
from attnsweep.workloads.vocabulary import with_own

_ROUNDING = 1e-5
"""How far below 0 rounding may put a loss, as a share of the largest reference level."""


def judged(workload: Workload[P], parameters: P, evidence: Evidence) -> Verdicts:
    tables = workload.verdicts
    if isinstance(tables, VerdictTable):
        return tables.judge(parameters, evidence)
    assert parameters.variant_field is not None
    return tables[getattr(parameters, parameters.variant_field)].judge(parameters, evidence)


def first_held(
    workload: Workload[P], parameters: P, evidence: Evidence, last_probe: NDArray[np.int64]
) -> dict[str, NDArray[np.int64]]:
    """For each event the first probe, up to `last_probe`, at which its condition held, (L,); -1 if none."""
    first = {}
    for name, when in workload.events.items():
        held = where_held(when, parameters, evidence, f"{workload.name}.events, {name}")
        held = held & (np.arange(held.shape[1]) <= last_probe[:, None])
        first[name] = np.where(held.any(axis=1), held.argmax(axis=1), -1)
    return first


def is_stuck(workload: Workload[Any], outcome: NDArray[np.str_]) -> NDArray[np.bool_]:
    return np.isin(outcome, [name for name, meaning in with_own(workload.outcomes).items() if meaning.is_stuck])


def least_losses(workload: Workload[Any], levels: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Below this `eval_loss`, (L,), a training has diverged: 0 minus a margin for rounding; minus infinity if the
    workload allows negative losses or a reference level is negative."""
    known_NL = np.nan_to_num(np.stack(list(levels.values())), nan=0.0)
    may_be_negative = workload.loss_may_be_negative | (known_NL.min(0) < 0)
    return np.where(may_be_negative, -np.inf, -_ROUNDING * known_NL.max(0))
