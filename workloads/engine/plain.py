"""Compares each training's first step in the engine with plain PyTorch, where it runs alone.

The engine calls one module for all trainings of a pack, with different weights. What else a loss reads, or stores for
the next call, could belong to another training, and would be lost when one is resumed. Axes: L training.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.constants import constants_of
from attnsweep.workloads.engine.construction import built_alone, starting_state, tensors_of
from attnsweep.workloads.engine.contract import Batch, Lanes, Training, Workload
from attnsweep.workloads.engine.engine_forms import DROPOUT, EngineForms, with_masks
from attnsweep.workloads.engine.functional import forms_in, gradients_of, in_eval_mode, numbers_of, over_lanes
from attnsweep.workloads.engine.layout import measurable, under
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.probing import examined
from attnsweep.workloads.engine.vectorization import told_to_users
from attnsweep.workloads.errors import SpecError

_LOSS_TOLERANCE, _GRADIENT_TOLERANCE = 1e-2, 5e-2
"""Accepted relative differences; large, because a module may round to bfloat16 inside."""
_TOLERANCE_AGAIN = 1e-6
"""That of a loss that is computed again."""
_ROUNDINGS, _ROUNDINGS_AGAIN = 1e4, 1e2
"""A further accepted difference, in units of the loss's rounding error, because the terms of a gradient may cancel."""
_ELSEWHERE = 0.1
"""How far from the initial weights modules are compared too: where weights are small, numbers may have no effect."""


def check_as_plain(workload: Workload[Any], trainings: Sequence[Training[Any]]) -> None:
    """Refuses trainings whose first loss or gradient differs from plain PyTorch's, or whose loss changes weights,
    buffers, the batch or the next call's result. Call it with a few that are as different as possible."""
    lanes = Lanes(trainings, torch.device("cpu"))
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
    leaves = {name: value.detach().requires_grad_() for name, value in measurable(weights).items()}
    loss_L = numbers_of("loss", over_lanes(template, workload.loss)(leaves, measurable(buffers), batch))
    gradients = gradients_of("loss", loss_L, leaves)
    for lane, training_alone in enumerate(alone):
        training_alone.compare(loss_L[lane].detach(), _copy(gradients, lane))
    for training_alone, next_alone in zip(alone, [*alone[1:], alone[0]], strict=True):
        training_alone.compare_again(next_alone)


class _Alone:
    """One training in plain PyTorch, with its initial weights."""

    def __init__(
        self, workload: Workload[Any], training: Training[Any], state: State, batch: Batch, eval_batch: Batch
    ) -> None:
        self._workload, self._training = workload, training
        self._state, self._batch, self._eval_batch = state, batch, eval_batch
        self._module = nn.Module()
        self._loss = torch.empty(())

    def compare(self, loss: Tensor, gradients: State) -> None:
        """Refuses the engine's loss and gradients if they differ."""
        # Built right before its loss, which may read what each `build` stores anew outside the module.
        self._module = built_alone(self._workload, self._training).to(next(iter(gradients.values())))
        _own_buffers(self._module)
        own_loss = self._at(self._state, self._batch, "loss", self._plain_loss)
        own_gradients = gradients_of("loss", own_loss, {name: self._module.get_parameter(name) for name in gradients})
        self._loss = own_loss.detach()
        self.compare_again(self)
        if not _is_near(loss, self._loss, self._loss, _LOSS_TOLERANCE * self._loss.abs()):
            given = f"the value {float(loss):.6g} when computed together with another training"
            expected = f"the value {float(self._loss):.6g}, which this training has when it is computed alone"
            raise _differs("the loss", given, expected)
        tolerance = _GRADIENT_TOLERANCE * max(value.abs().max() for value in own_gradients.values() if value.numel())
        for name, value in own_gradients.items():
            if self._loss.isfinite() and not _is_near(gradients[name], value, self._loss, tolerance):
                given = "other values when computed together with another training"
                raise _differs(f"the gradient of {name}", given, "those that it has when computed alone")
        self._at(self._state, self._eval_batch, "eval_loss", in_eval_mode(partial(examined, self._workload)))

    def compare_again(self, other: "_Alone") -> None:
        """Computes `other`'s loss by this module: it differs if a module keeps something between calls, or hides a
        number of its training."""
        generator, elsewhere = torch.Generator().manual_seed(0), dict(other._state)
        for name in (name for name, value in self._module.named_parameters() if value.requires_grad):
            noise = torch.randn(elsewhere[name].shape, generator=generator)
            elsewhere[name] = elsewhere[name] + _ELSEWHERE * noise.to(elsewhere[name])
        for state, expected in (
            (other._state, other._loss),
            (elsewhere, other._at(elsewhere, other._batch, "loss", other._plain_loss)),
        ):
            loss = self._at(state, other._batch, "loss", self._plain_loss)
            if not _is_near(loss, expected, expected, _TOLERANCE_AGAIN * expected.abs(), _ROUNDINGS_AGAIN):
                when = "again" if other is self else "with the same weights and batch by another training's module"
                given = f"a loss whose value changes when it is computed {when}"
                fix = "store nothing, draw in `data` with its argument `draw`, and use self.NAME = at.per_lane(value)"
                raise SpecError("the loss", given=given, expected="a loss of tensors and batch alone", fix=fix)

    def _plain_loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """By PyTorch's functions, except that dropout drops the same entries as in the engine."""
        masks = under(DROPOUT, batch)
        data = {name: batch[name] for name in batch if not name.startswith(f"{DROPOUT}/")}
        with EngineForms(masks, has_padding=False) if masks else nullcontext():
            return self._workload.loss(module, data)

    def _at(self, state: State, batch: Batch, name: str, function: Callable[[nn.Module, Batch], Any]) -> Any:
        with torch.no_grad():
            for tensor_name, value in tensors_of(self._module).items():
                value.copy_(state[tensor_name])
        batch_copy, before = _copy(batch), constants_of(self._module, tensors=False)
        with told_to_users():
            result = function(self._module, batch_copy)
        after = constants_of(self._module, tensors=False)
        if after != before:
            # A first call may fill a cache, which stays; a counter changes in every call.
            function(self._module, _copy(batch))
            after_next = constants_of(self._module, tensors=False)
            for attribute in (each for each in {**after, **after_next} if after.get(each) != after_next.get(each)):
                change = f"a change from {after.get(attribute, 'nothing')} to {after_next.get(attribute, 'nothing')}"
                given, fix = f"{change} while {name} was computed", "compute it in `data`, and draw there"
                expected = "a module that keeps nothing from call to call"
                raise SpecError(f"{attribute} of the module", given=given, expected=expected, fix=fix)
        if changed := _changed(tensors_of(self._module), state):
            given, expected = f"a change of its values while {name} was computed", "no change but the optimizer's"
            fix = "use LayerNorm, or track_running_stats=False in batch norm; compute what changes in `data`"
            raise SpecError(f"{changed} of the module", given=given, expected=expected, fix=fix)
        if changed := _changed(batch_copy, batch):
            given = f"a change of its values while {name} was computed"
            expected = "a batch that the loss does not change"
            fix = "make a new tensor, for example write x = 2 * x in place of x *= 2"
            raise SpecError(f"{changed} of the batch", given=given, expected=expected, fix=fix)
        return result


def _own_buffers(module: nn.Module) -> None:
    """The user's `build` may have given the same tensors to several modules."""
    copies: dict[int, Tensor] = {}
    for owner in module.modules():
        for name, buffer in list(owner.named_buffers(recurse=False, remove_duplicate=False)):
            setattr(owner, name, copies.setdefault(id(buffer), buffer.clone()))


def _differs(subject: str, given: str, expected: str) -> SpecError:
    rule = "compute only with the batch and registered parameters and buffers"
    fix = f"keep a number in which trainings differ as self.NAME = at.per_lane(value), and {rule}"
    return SpecError(subject, given=given, expected=expected, fix=fix)


def _copy(values: Mapping[str, Tensor], lane: int | None = None) -> State:
    return {name: (value if lane is None else value[lane]).detach().clone() for name, value in values.items()}


def _changed(after: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> str:
    for name, value in after.items():
        if name not in before or not torch.equal(value.nan_to_num(), before[name].to(value).nan_to_num()):
            return name
    return ""


def _is_near(one: Tensor, other: Tensor, loss: Tensor, tolerance: Tensor, roundings: float = _ROUNDINGS) -> bool:
    allowed = tolerance + roundings * torch.finfo(loss.dtype).eps * (1 + loss.abs())
    return bool((((one - other).abs() <= allowed) | (one == other) | (one.isnan() & other.isnan())).all())
