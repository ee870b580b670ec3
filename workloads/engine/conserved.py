"""Measures at probes the quantities that gradient flow conserves (docs/gradients.md), and how far they have drifted.

Axes: L lane (all trainings of the pack), A active lane, F lane of a family, n entry of a quantity.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap

from attnsweep.workloads.engine.contract import Lanes, P, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.identities.identity import Conserved

_CHARGE = "charge_"


@dataclass(frozen=True)
class _Family:
    """Those trainings of a pack that declare the same conserved quantities.

    Attributes:
        lanes: (F,) the positions of the trainings in the pack.
        declared: The declared quantities.
        start: The values (F, n) at the start, by quantity.
    """

    lanes: NDArray[np.int64]
    declared: Sequence[Conserved]
    start: State


class ConservedQuantities:
    """Measures the conserved quantities that a pack's trainings declare, if `record_charges` is set.

    All are computed in float64, whatever the type of the weights.

    Args:
        workload: The problem.
        lanes: The L trainings.
        parameters: The initial weights (L, ...) by name.
    """

    def __init__(self, workload: Workload[P], lanes: Lanes[P], parameters: State) -> None:
        self._families = list(_families(workload, lanes, parameters)) if lanes.shared.record_charges else []

    def measured(self, position: NDArray[np.int64], parameters: State) -> State:
        """Computes the metrics (A,) `charge_<name>` and `<quantity>_drift`; NaN for trainings that declare none.

        `charge_<name>` is the charge's largest entry in absolute value, and `<quantity>_drift` the largest change of an
        entry since the start.

        Args:
            position: (A,) the positions of the active trainings in the pack.
            parameters: The weights (A, ...) by name.
        """
        metrics: State = {}
        for family in self._families:
            is_active = np.isin(family.lanes, position)
            lanes = np.searchsorted(position, family.lanes[is_active])
            if lanes.size:
                start = {name: value[_index(np.flatnonzero(is_active), value)] for name, value in family.start.items()}
                for name, value_F in _metrics(start, _quantities(family.declared, parameters, lanes)).items():
                    metrics.setdefault(name, value_F.new_full(position.shape, torch.nan))[_index(lanes, value_F)] = (
                        value_F
                    )
        return metrics


def conserved_by(workload: Workload[P], parameters: P) -> tuple[Conserved, ...]:
    """Returns the conserved quantities that a training with these parameters declares."""
    return tuple(identity for identity in workload.identities(parameters) if isinstance(identity, Conserved))


def _families(workload: Workload[P], lanes: Lanes[P], parameters: State) -> Iterator[_Family]:
    declared = [conserved_by(workload, training.parameters) for training in lanes.trainings]
    # Declared families are compared pairwise, because a `Conserved` may contain slices, which cannot be hashed.
    distinct = [family for lane, family in enumerate(declared) if family and family not in declared[:lane]]
    for family in distinct:
        members = np.array([lane for lane, quantities in enumerate(declared) if quantities == family])
        yield _Family(members, family, _quantities(family, parameters, members))


def _quantities(declared: Sequence[Conserved], parameters: State, lanes: NDArray[np.int64]) -> State:
    """Computes the declared quantities (F, n) of the trainings at positions `lanes`, by name."""

    def of_one_training(weights: State) -> State:
        entries: dict[str, list[Tensor]] = {}
        for conserved in declared:
            entries.setdefault(conserved.quantity, []).append(conserved.conserved(weights).flatten())
        return {name: torch.cat(values) for name, values in entries.items()}

    # A single lane is computed twice, side by side: for one lane PyTorch would use other kernels for products and sums,
    # which round differently.
    padded = lanes if lanes.size > 1 else lanes.repeat(2)
    quantities: State = vmap(of_one_training)(
        {name: value[_index(padded, value)].double() for name, value in parameters.items()}
    )
    return {name: value[: lanes.size] for name, value in quantities.items()}


def _metrics(start: State, now: State) -> State:
    metrics: State = {}
    for name, value_Fn in now.items():
        if name.startswith(_CHARGE):
            metrics[name] = value_Fn.abs().amax(1)
        metrics[f"{name}_drift"] = (value_Fn - start[name]).abs().amax(1)
    return metrics


def _index(positions: NDArray[np.int64], like: Tensor) -> Tensor:
    return torch.from_numpy(positions).to(like.device)
