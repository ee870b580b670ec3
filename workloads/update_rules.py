"""The update rules of trainings and their hyperparameters. The engine needs no change for a further one of either.

An update is a function of rows: it changes the parameters `theta` (L, ...) of L trainings and their running averages in
place, and reads nothing besides its arguments. Every engine takes it: with PyTorch's kernels, compiled for blocks, or
captured in a graph. The arithmetic is that of `torch.optim`, operation by operation, so that one training agrees with a
plain PyTorch loop.

Nothing here imports PyTorch: commands that train nothing read the declarations.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from attnsweep.workloads.declaration import parameter

if TYPE_CHECKING:
    from torch import Tensor

Tensors: TypeAlias = "Mapping[str, Tensor]"


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateRule:
    """A rule that evaluates the gradient once a step, and then takes the step.

    Attributes:
        update: Takes the step of L trainings: `update(theta, gradient, slots, rates)`. `slots` are its averages by
            name. `rates` are the learning rate of the step, what `reads` names, `constants` and `corrections`; each has
            one value for each training, in a shape that broadcasts over `theta`.
        slots: The averages that it keeps, each of the shape of `theta` and zero before the first step, with the
            hyperparameter that each serves. If that is in `optional` and 0 in all trainings, the average is not kept.
        reads: The hyperparameters that it reads besides the learning rate.
        optional: Those of them that are left out of `rates` if they are 0 in all trainings: 0 must mean that the update
            is the same, to the last bit, as without.
        constants: Numbers that follow from the hyperparameters of `computed_from`, in double precision.
        corrections: Numbers that follow from them and from the number t = 1, 2, ... of the step. They are computed by
            Python for each step and each value of `computed_from` in a pack, so keep them short.
        computed_from: The hyperparameters that both are called with, by keyword.
    """

    update: "Callable[[Tensor, Tensor, Tensors, Tensors], None]"
    slots: Mapping[str, str] = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    constants: Callable[..., Mapping[str, float]] = lambda **_: {}
    corrections: Callable[..., Mapping[str, float]] = lambda t, **_: {}  # noqa: ARG005
    computed_from: tuple[str, ...] = ()


def _sgd(theta: "Tensor", gradient: "Tensor", slots: Tensors, rates: Tensors) -> None:
    """Gradient descent with heavy-ball momentum, `v = momentum v + gradient; theta -= learning_rate v`.

    `torch.optim.SGD` without dampening and Nesterov; weight decay is added to the gradient.
    """
    direction = _with_decay_added(theta, gradient, rates)
    if "momentum" in rates:
        direction = slots["velocity"].mul_(rates["momentum"]).add_(direction)
    theta.addcmul_(rates["learning_rate"], direction, value=-1.0)


def _adam(theta: "Tensor", gradient: "Tensor", slots: Tensors, rates: Tensors) -> None:
    """Adam; weight decay is added to the gradient. Source: Kingma & Ba 2015, algorithm 1."""
    _adam_step(theta, _with_decay_added(theta, gradient, rates), slots, rates)


def _adamw(theta: "Tensor", gradient: "Tensor", slots: Tensors, rates: Tensors) -> None:
    """Adam with decoupled weight decay: parameters shrink by `1 - learning_rate weight_decay` before each update.

    Source: Loshchilov & Hutter 2019, algorithm 2.
    """
    if "weight_decay" in rates:
        theta.mul_(1 - rates["learning_rate"] * rates["weight_decay"])
    _adam_step(theta, gradient, slots, rates)


def _with_decay_added(theta: "Tensor", gradient: "Tensor", rates: Tensors) -> "Tensor":
    return gradient.addcmul(rates["weight_decay"], theta) if "weight_decay" in rates else gradient


def _adam_step(theta: "Tensor", gradient: "Tensor", slots: Tensors, rates: Tensors) -> None:
    first, second = slots["first"], slots["second"]
    weight = rates["weight_1"]
    if first.dtype == weight.dtype:
        first.lerp_(gradient, weight)
    else:  # In bfloat16: the difference is computed in float32.
        first.addcmul_(weight, gradient.to(weight.dtype) - first)
    second.mul_(rates["beta_2"]).addcmul_(gradient * rates["weight_2"], gradient)
    root = second.sqrt().div_(rates["correction_2_root"]).add_(rates["adam_eps"])
    theta.sub_((first / root).mul_(rates["learning_rate"] / rates["correction_1"]))


def _adam_weights(*, beta_1: float, beta_2: float) -> dict[str, float]:
    return {"weight_1": 1 - beta_1, "weight_2": 1 - beta_2}


def _adam_corrections(t: int, *, beta_1: float, beta_2: float) -> dict[str, float]:
    return {"correction_1": 1 - beta_1**t, "correction_2_root": (1 - beta_2**t) ** 0.5}


_ADAM: dict[str, Any] = {
    "slots": {"first": "beta_1", "second": "beta_2"},
    "reads": ("weight_decay", "beta_2", "adam_eps"),
    "optional": ("weight_decay",),
    "constants": _adam_weights,
    "corrections": _adam_corrections,
    "computed_from": ("beta_1", "beta_2"),
}
UPDATE_RULES: Mapping[str, UpdateRule] = {
    "sgd": UpdateRule(
        update=_sgd,
        slots={"velocity": "momentum"},
        reads=("momentum", "weight_decay"),
        optional=("momentum", "weight_decay"),
    ),
    "adam": UpdateRule(update=_adam, **_ADAM),
    "adamw": UpdateRule(update=_adamw, **_ADAM),
}
OPTIMIZERS = (*UPDATE_RULES, "lbfgs")
"""The values of `optimizer`: L-BFGS searches along lines (`engine.lbfgs`)."""

_MOST_BETA = 0.999_999


def optimizer_parameter(default: str) -> Any:
    """Declares the field `optimizer`, for workloads with a default of their own."""
    return parameter(default, "update rule", choices=OPTIMIZERS, static=True)


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """The optimizer of a training and what it is set to. All but its name may differ between the lanes of a pack.

    Schedule, warm-up and clipping are the engine's (`engine/first_order.py`): a rule gets the rate and the gradient
    that they leave. What a rule reads is a float or an int.
    """

    optimizer: str = optimizer_parameter("sgd")
    learning_rate: float = parameter(
        1e-2,
        "step size of the optimizer; for lbfgs, the first step of line searches: use 1, PyTorch's default",
        above=0.0,
    )
    learning_rate_schedule: str = parameter(
        "constant",
        "the learning rate after warm-up: constant, or a cosine to 0 at n_steps; not for lbfgs",
        choices=("constant", "cosine"),
    )
    warmup_steps: int = parameter(0, "steps over which the learning rate rises linearly; not for lbfgs", low=0)
    momentum: float = parameter(0.0, "momentum of sgd; not for the other optimizers", low=0.0, high=1.0)
    weight_decay: float = parameter(
        0.0, "weight decay: added to the gradient for sgd and adam, decoupled for adamw; not for lbfgs", low=0.0
    )
    gradient_clip_norm: float | None = parameter(
        None, "gradients with a larger norm are scaled down to this norm; null = none; not for lbfgs", above=0.0
    )
    beta_1: float = parameter(
        0.9, "adam and adamw: decay of the running average of gradients", low=0.0, high=_MOST_BETA, since="0.2"
    )
    beta_2: float = parameter(
        0.999, "adam and adamw: decay of the running average of their squares", low=0.0, high=_MOST_BETA, since="0.2"
    )
    adam_eps: float = parameter(
        1e-8, "adam and adamw: added to the root of that average, by which steps are divided", above=0.0, since="0.2"
    )
