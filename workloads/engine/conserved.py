"""What gradient flow conserves, measured at probes: see docs/gradients.md.

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
    """Trainings that declare the same.

    Attributes:
        lanes: (F,) their positions in the pack.
        declared: What they declare.
        start: (F, n) by quantity, where they started.
    """

    lanes: NDArray[np.int64]
    declared: Sequence[Conserved]
    start: State


class ConservedQuantities:
    """The conserved quantities that the trainings of a pack declare, if they are to be recorded.

    All are computed in float64, whatever the type of the weights.

    Args:
        workload: The problem.
        lanes: The L trainings.
        parameters: (L, ...) by name, where they start.
    """

    def __init__(self, workload: Workload[P], lanes: Lanes[P], parameters: State) -> None:
        self._families = list(_families(workload, lanes, parameters)) if lanes.shared.record_charges else []

    def measured(self, position: NDArray[np.int64], parameters: State) -> State:
        """(A,) by metric: the largest entry of each charge, and the largest change of an entry of each quantity since
        the start; NaN for trainings that declare no such quantity.

        Args:
            position: (A,) the active trainings.
            parameters: (A, ...) by name.
        """
        found: State = {}
        for family in self._families:
            is_active = np.isin(family.lanes, position)
            lanes = np.searchsorted(position, family.lanes[is_active])
            if lanes.size:
                start = {name: value[_index(np.flatnonzero(is_active), value)] for name, value in family.start.items()}
                for name, value_F in _metrics(start, _quantities(family.declared, parameters, lanes)).items():
                    found.setdefault(name, value_F.new_full(position.shape, torch.nan))[_index(lanes, value_F)] = (
                        value_F
                    )
        return found


def conserved_by(workload: Workload[P], parameters: P) -> tuple[Conserved, ...]:
    """What a training with these parameters declares as conserved."""
    return tuple(each for each in workload.identities(parameters) if isinstance(each, Conserved))


def _families(workload: Workload[P], lanes: Lanes[P], parameters: State) -> Iterator[_Family]:
    declared = [conserved_by(workload, training.parameters) for training in lanes.trainings]
    # They may hold slices, which cannot be hashed.
    different = [each for lane, each in enumerate(declared) if each and each not in declared[:lane]]
    for family in different:
        members = np.array([lane for lane, each in enumerate(declared) if each == family])
        yield _Family(members, family, _quantities(family, parameters, members))


def _quantities(declared: Sequence[Conserved], parameters: State, lanes: NDArray[np.int64]) -> State:
    """(F, n) by quantity."""

    def of_one(weights: State) -> State:
        entries: dict[str, list[Tensor]] = {}
        for each in declared:
            entries.setdefault(each.quantity, []).append(each.conserved(weights).flatten())
        return {name: torch.cat(values) for name, values in entries.items()}

    # A single lane would take other kernels for products and sums, which round differently.
    padded = lanes if lanes.size > 1 else lanes.repeat(2)
    found: State = vmap(of_one)({name: value[_index(padded, value)].double() for name, value in parameters.items()})
    return {name: value[: lanes.size] for name, value in found.items()}


def _metrics(start: State, now: State) -> State:
    """(F,) by metric."""
    found: State = {}
    for name, value_Fn in now.items():
        if name.startswith(_CHARGE):
            found[name] = value_Fn.abs().amax(1)
        found[f"{name}_drift"] = (value_Fn - start[name]).abs().amax(1)
    return found


def _index(positions: NDArray[np.int64], like: Tensor) -> Tensor:
    return torch.from_numpy(positions).to(like.device)
