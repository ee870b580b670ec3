"""What plain PyTorch makes of a training by itself: the engine has to compute the same.

The engine runs one module for all trainings of a pack, in each call with other weights. What a loss reads from anywhere
else, or leaves behind for the next call, would be another training's, and be lost when a training is resumed.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.construction import built_alone
from attnsweep.workloads.engine.contract import Batch, Lanes, Training, Workload
from attnsweep.workloads.engine.dropout import DROPOUT, with_masks
from attnsweep.workloads.engine.engine_forms import EngineForms
from attnsweep.workloads.engine.functional import forms_in, over_lanes
from attnsweep.workloads.engine.layout import under
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.precision import measurable
from attnsweep.workloads.engine.probing import examined
from attnsweep.workloads.engine.readings import gradients_of, numbers_of
from attnsweep.workloads.engine.starting_state import starting_state
from attnsweep.workloads.errors import SpecError

_LOSS_TOLERANCE, _GRADIENT_TOLERANCE = 1e-2, 5e-2
"""How much rounding may change a loss or a gradient, relative to its size. A module may round to bfloat16 inside."""
_TOLERANCE_AGAIN = 1e-6
"""And how much where the same is computed again."""
_ROUNDINGS = 1e4
"""And how many roundings of the loss it may differ by, where the terms of a gradient cancel."""


def check_as_plain(workload: Workload[Any], trainings: Sequence[Training[Any]], device: str = "cpu") -> None:
    """Refuses trainings whose first step the engine does not compute as plain PyTorch does for each by itself.

    Args:
        workload: The problem.
        trainings: A few of one shape, as different as they can be.
        device: Where to compute.

    Raises:
        SpecError: If a loss or a gradient differs, or if computing one changes weights, buffers, the batch, or what is
            computed next.
    """
    lanes = Lanes(trainings, torch.device(device))
    weights, buffers, template = starting_state(workload, lanes)
    eval_batch = workload.eval_batch(lanes) | workload.fresh_eval_batch(lanes, 0)
    batch = workload.batches(lanes, range(1))[0]
    forms = forms_in(template, workload.loss, _copy(weights | buffers, 0), _copy(batch, 0))
    batch = with_masks(lanes, forms.masks.sites, 0, batch)
    state, batch, eval_batch = map(measurable, (weights | buffers, batch, eval_batch))
    alone = [
        _Alone(workload, training, _copy(state, lane), _copy(batch, lane), _copy(eval_batch, lane))
        for lane, training in enumerate(trainings)
    ]
    loss_L, gradients = _side_by_side(workload, template, measurable(weights), measurable(buffers), batch)
    for lane, each in enumerate(alone):
        each.compare(loss_L[lane], _copy(gradients, lane))
    for one, next_one in zip(alone, [*alone[1:], alone[0]], strict=True):
        one.compare_again(next_one)


def said_of_forms(workload: Workload[Any], training: Training[Any]) -> str:
    """Which of PyTorch's functions the loss of a training has in a form of the engine's."""
    lanes = Lanes([training], torch.device("cpu"))
    weights, buffers, template = starting_state(workload, lanes)
    batch = workload.batches(lanes, range(1))[0]
    names = forms_in(template, workload.loss, _copy(weights | buffers, 0), _copy(batch, 0)).replaced
    return f"in the engine's form (docs/modules.md): {', '.join(sorted(names)) or 'none of its functions'}"


def _side_by_side(
    workload: Workload[Any], template: nn.Module, weights: State, buffers: State, batch: Batch
) -> tuple[Tensor, State]:
    """The losses (L,) and their gradients (L, ...) by name."""
    leaves = {name: value.detach().requires_grad_() for name, value in weights.items()}
    loss_L = numbers_of("loss", over_lanes(template, workload.loss)(leaves, buffers, batch))
    return loss_L.detach(), gradients_of("loss", loss_L, leaves)


class _Alone:
    """A training by itself, at its start.

    Args:
        workload: The problem.
        training: The training.
        state: Where it starts, parameters and buffers by name.
        batch, eval_batch: What it sees first.
    """

    def __init__(
        self, workload: Workload[Any], training: Training[Any], state: State, batch: Batch, eval_batch: Batch
    ) -> None:
        self._workload, self._training = workload, training
        self._state, self._batch, self._eval_batch = state, batch, eval_batch
        self._module = nn.Module()
        self._loss = torch.empty(())

    def compare(self, loss: Tensor, gradients: State) -> None:
        """Compares its loss and gradients with these, of the same training beside others."""
        # Built just before: what `build` leaves outside of the module is this training's by now.
        self._module = built_alone(self._workload, self._training).to(next(iter(gradients.values())))
        _own_buffers(self._module)
        its_loss = self._at(self._state, self._batch, "loss", self._its_loss)
        its_gradients = gradients_of("loss", its_loss, {name: self._module.get_parameter(name) for name in gradients})
        self._loss = its_loss.detach()
        self.compare_again(self)
        if not _is_near(loss, self._loss, self._loss, _LOSS_TOLERANCE * self._loss.abs()):
            raise _differs("the loss", f"{float(loss):.6g} beside another training and {float(self._loss):.6g} alone")
        tolerance = _GRADIENT_TOLERANCE * max(value.abs().max() for value in its_gradients.values() if value.numel())
        for name, value in its_gradients.items():
            if self._loss.isfinite() and not _is_near(gradients[name], value, self._loss, tolerance):
                raise _differs(f"the gradient of {name}", "one beside another training, and another one alone")
        self._at(self._state, self._eval_batch, "eval_loss", partial(examined, self._workload))

    def compare_again(self, other: "_Alone") -> None:
        """Compares what this one's module computes for another training, after its own, with the other's loss."""
        loss = self._at(other._state, other._batch, "loss", self._its_loss)
        if not _is_near(loss, other._loss, other._loss, _TOLERANCE_AGAIN * other._loss.abs()):
            raise SpecError(
                "the loss",
                given="another value when it is computed again",
                expected="a function of the module's parameters and buffers and the batch",
                fix="keep no counter, cache or last output from call to call, and draw random numbers in `batch`,"
                " from lanes.streams",
            )

    def _its_loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """The loss in PyTorch's own functions, where nothing has to drop the same as beside others."""
        masks = under(DROPOUT, batch)
        own = {name: batch[name] for name in batch if not name.startswith(f"{DROPOUT}/")}
        with EngineForms(masks, has_padding=False) if masks else nullcontext():
            return self._workload.loss(module, own)

    def _at(self, state: State, batch: Batch, name: str, function: Callable[[nn.Module, Batch], Any]) -> Any:
        """A function of the module in a state, which it has to leave as it is."""
        with torch.no_grad():
            for each, value in _tensors(self._module).items():
                value.copy_(state[each])
        seen = _copy(batch)
        found = function(self._module, seen)
        if changed := _changed(_tensors(self._module), state):
            raise SpecError(
                f"{changed} of the module",
                given=f"a change of it while {name} was computed",
                expected="parameters and buffers that stay as they are: only gradients change them, from step to step",
                fix="for batch norm use track_running_stats=False, or LayerNorm; put what differs from step to step"
                " into `batch`",
            )
        if changed := _changed(seen, batch):
            raise SpecError(
                f"{changed} of the batch",
                given=f"a change of it while {name} was computed",
                expected="a batch that stays as it is",
                fix="make a new tensor, such as x = 2 * x for x *= 2",
            )
        return found


def _own_buffers(module: nn.Module) -> None:
    """Replaces the module's buffers by copies: `build` may have given it tensors that others have too."""
    copies: dict[int, Tensor] = {}
    for owner in module.modules():
        for name, buffer in list(owner.named_buffers(recurse=False, remove_duplicate=False)):
            setattr(owner, name, copies.setdefault(id(buffer), buffer.clone()))


def _tensors(module: nn.Module) -> State:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _differs(subject: str, given: str) -> SpecError:
    return SpecError(
        subject,
        given=given,
        expected="the same",
        fix="compute with registered parameters and buffers and the batch: not with parameters in lists or functions,"
        " globals, class attributes, hooks that differ between trainings, or hooks on gradients",
    )


def _copy(values: Mapping[str, Tensor], lane: int | None = None) -> State:
    return {name: (value if lane is None else value[lane]).detach().clone() for name, value in values.items()}


def _changed(now: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> str:
    """The name of a tensor that is another than before, or that is new; empty if there is none."""
    for name, value in now.items():
        if name not in before or not torch.equal(value.nan_to_num(), before[name].to(value).nan_to_num()):
            return name
    return ""


def _is_near(one: Tensor, other: Tensor, loss: Tensor, tolerance: Tensor) -> bool:
    """Whether two values differ by no more than the tolerance and the rounding of a loss."""
    most = tolerance + _ROUNDINGS * torch.finfo(loss.dtype).eps * (1 + loss.abs())
    return bool((((one - other).abs() <= most) | (one == other) | (one.isnan() & other.isnan())).all())
