"""A pack's trainings: the present state of active ones, which have not ended, and final parameters of ended ones."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.engine.checkpoint import Checkpoint
from attnsweep.workloads.engine.constants import digest_of
from attnsweep.workloads.engine.construction import starting_state
from attnsweep.workloads.engine.continued import Redraw
from attnsweep.workloads.engine.contract import STEPS_AT_ONCE, Batch, Lanes, P, Training, Workload
from attnsweep.workloads.engine.engine_forms import DROPOUT, Site, with_masks
from attnsweep.workloads.engine.functional import forms_in, unused_in
from attnsweep.workloads.engine.intervening import Interventions
from attnsweep.workloads.engine.lane_state import Blueprint, LaneState, filled_up, optimizer_of, shapes_of
from attnsweep.workloads.engine.layout import Layout, in_type, measurable, prefixed, selected, under
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.errors import SpecError

_MASK_BYTES = 64 * 2**20
"""The memory of dropout masks drawn ahead of their steps."""

Array = TypeVar("Array", Tensor, NDArray[Any])


class LaneStore(LaneState, Generic[P]):
    """Draws batches and drops ended trainings. The arguments are those of `Pack`.

    Attributes:
        position: The active trainings' places in the pack.
        lanes: These trainings, and copies of the last one where the pack's width is fixed.
    """

    def __init__(
        self,
        workload: Workload[P],
        trainings: Sequence[Training[P]],
        device: str,
        start: State | None,
        width: int | None,
        redraw: Redraw | None = None,
    ) -> None:
        self._workload, self._width = workload, width
        self.all = Lanes(trainings, torch.device(device))
        self.position = np.arange(len(trainings))
        self.lanes = self.all.select(self._filled_up(self.position)) if width else self.all
        self._drawing = redraw.lanes(self.all).select(self._filled_up(self.position)) if redraw else self.lanes
        parameters, buffers, template = starting_state(workload, self.lanes, start)
        # Before the module computes anything: it may store results in an attribute.
        constants = digest_of(template)
        self.draw(0)
        # Weight decay must not shrink parameters that the loss does not use, so they are kept among the buffers.
        self._unused = unused_in(template, workload.loss, parameters, buffers, self._drawn[0])
        buffers |= {name: parameters.pop(name) for name in sorted(self._unused)}
        layout = Layout(parameters)
        super().__init__(
            blueprint=Blueprint(workload, template, layout, self.lanes.shared, constants),
            optimizer=optimizer_of(self.lanes),
            rows=layout.rows(parameters),
            buffers=buffers,
        )
        self.optimizer.keeps_width = width is not None
        self._all_buffers, self._ended_rows = self.buffers, torch.empty_like(self.rows[: len(trainings)])
        self._sites: dict[Hashable, tuple[Site, ...]] = {}
        self._masked: tuple[int, Batch] = (-1, {})
        self.interventions = Interventions(self, self.lanes)

    def active(self, by_name: Mapping[str, Array]) -> dict[str, Array]:
        """Without the copies that fill up the pack."""
        return {name: value[: self.position.size] for name, value in by_name.items()}

    def batch_at(self, step: int) -> Batch:
        # Kept, because some optimizers request the same batch at every step.
        if not self._first_drawn <= step < self._first_drawn + len(self._drawn):
            self.draw(step)
        batch = self._drawn[step - self._first_drawn]
        sites = self._sites_of(batch)
        if not sites:
            return batch
        if self._masked[0] != step:
            self._masked = step, with_masks(self._drawing, sites, step, batch)
        return self._masked[1]

    def draw(self, step: int) -> None:
        self._first_drawn, self._drawn_for = step, self.position
        steps = range(step, min(step + STEPS_AT_ONCE, self.lanes.shared.n_steps + 1))
        self._drawn = self._workload.batches(self._drawing, steps)

    def batches(self, start: int, until: int) -> list[Batch]:
        """A `Batches`: those that are drawn already; with dropout as many as the masks' memory allows."""
        batch = self.batch_at(start)
        if self._sites_of(self._drawn[start - self._first_drawn]):
            n_bytes = sum(mask.nbytes for mask in under(DROPOUT, batch).values())
            steps = range(start + 1, until)[: _MASK_BYTES // max(n_bytes, 1)]
            return [batch, *map(self.batch_at, steps)]
        if not batch:
            return [batch] * (until - start)
        return self._drawn[start - self._first_drawn :][: until - start]

    def _sites_of(self, batch: Batch) -> tuple[Site, ...]:
        """The calls of dropout in the loss, which is evaluated to find them once for each shape of batches."""
        shapes = shapes_of(batch)
        if shapes not in self._sites:
            template, loss = self.blueprint.template, self._workload.loss
            forms = forms_in(template, loss, *map(_first, (self.parameters | self.buffers, batch)))
            buffers = self.buffers.copy()
            parameters = self.parameters | {name: buffers.pop(name) for name in self._unused}
            if self._unused and not self._unused <= unused_in(template, loss, parameters, buffers, batch):
                given = "parameters that the loss uses only at batches of some shapes"
                expected = "a loss that uses the same parameters at every step"
                fix = "add 0 times their sum to the loss, or leave them out of the module"
                raise SpecError(", ".join(sorted(self._unused)), given=given, expected=expected, fix=fix)
            self._sites[shapes] = tuple(forms.masks.sites)
        return self._sites[shapes]

    def keep(self, position: NDArray[np.int64]) -> Tensor | None:
        """Keeps only the active trainings at these places in the pack. Returns the kept lanes' indices among those
        before; `None` if all are kept, or none is left."""
        ended = np.flatnonzero(~np.isin(self.position, position))
        if not ended.size:
            return None
        self._ended_rows[self.on_device(self.position[ended])] = self.rows[self.on_device(ended)]
        lanes = self._filled_up(np.searchsorted(self.position, position))
        self.position, self.rows = position, self.rows[lanes]
        if not position.size:
            return None
        is_redrawn = self._drawing is not self.lanes
        self.lanes = self.lanes.select(lanes)
        self._drawing = self._drawing.select(lanes) if is_redrawn else self.lanes
        self.buffers = selected(self.buffers, lanes)
        self._drawn = [selected(batch, lanes) for batch in self._drawn]
        self._masked = (-1, {})
        self.optimizer.select(lanes)
        return lanes

    def final_state(self, positions: NDArray[np.int64]) -> tuple[Lanes[P], State]:
        """Parameters and buffers of these trainings: final ones if ended, else present ones."""
        lanes = torch.from_numpy(positions).to(self.all.device)
        state = self.blueprint.layout.views(self._all_rows()) | self._all_buffers
        return self.all.select(lanes), selected(state, lanes)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What steps have changed, for a checkpoint."""
        tensors = {"rows": self._all_rows(), **prefixed("optimizer", self.optimizer.state_dict())}
        return {
            "position": self.position,
            "drawn_for": self._drawn_for,
            "first_drawn": np.array(self._first_drawn),
            **{name: tensor.numpy(force=True).copy() for name, tensor in measurable(tensors).items()},
        }

    def restore(self, checkpoint: Checkpoint) -> None:
        """Loads a checkpoint's state; the same trainings must be active as when it was made."""
        self._ended_rows = self.on_device(checkpoint["rows"]).to(self.lanes.dtype)
        self.rows = self._ended_rows[self._filled_up(self.position)]
        state = {name: self.on_device(array) for name, array in under("optimizer", checkpoint).items()}
        if self.lanes.dtype == torch.bfloat16:
            state = in_type(state, torch.bfloat16)
        self.optimizer.load_state_dict(state)

    def on_device(self, array: NDArray[Any]) -> Tensor:
        return torch.tensor(array, device=self.all.device)

    def _all_rows(self) -> Tensor:
        return self._ended_rows.index_copy(0, self.on_device(self.position), self.rows[: self.position.size])

    def _filled_up(self, lanes: NDArray[np.int64]) -> Tensor:
        active = self.on_device(lanes)
        return filled_up(active, self._width) if self._width and lanes.size else active


def _first(state: State) -> State:
    return {name: value[0].detach() for name, value in state.items()}
