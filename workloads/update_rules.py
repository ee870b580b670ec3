"""The update rules of first-order optimizers, and their hyperparameters; a further one needs no change in the engine.

An update changes the parameters `theta` of trainings (the first axis) and their running averages in place, and reads
nothing but its arguments. So all engines can run it: with PyTorch's kernels, compiled, or captured in a CUDA graph. The
arithmetic is that of `torch.optim`, operation by operation. Commands that train nothing read the declarations, so
nothing here imports PyTorch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from attnsweep.workloads.declaration import parameter

if TYPE_CHECKING:
    from torch import Tensor

Tensors: TypeAlias = "Mapping[str, Tensor]"


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateRule:
    """An optimizer that evaluates the gradient once per step.

    Attributes:
        update: `update(theta, gradient, slots, rates)` takes one step of several trainings. `slots` holds the running
            averages by name; `rates` the learning rate, the hyperparameters of `reads`, `constants` and `corrections`,
            one value per training, in a shape that broadcasts over `theta`.
        slots: The running averages, which start at 0, and for each the hyperparameter that controls it.
        optional: Hyperparameters left out of `rates`, and their averages, if 0 in all trainings.
        constants, corrections: Compute numbers, in double precision, from the hyperparameters of `computed_from`;
            `corrections` also from the step's number t = 1, 2, ..., in Python for every step.
    """

    update: "Callable[[Tensor, Tensor, Tensors, Tensors], None]"
    slots: Mapping[str, str] = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    constants: Callable[..., Mapping[str, float]] = lambda **_: {}
    corrections: Callable[..., Mapping[str, float]] = lambda t, **_: {}  # noqa: ARG005
    computed_from: tuple[str, ...] = ()


def _sgd(theta: "Tensor", gradient: "Tensor", slots: Tensors, rates: Tensors) -> None:
    """Heavy-ball momentum, as `torch.optim.SGD`: v = momentum v + gradient; theta -= learning_rate v."""
    direction = _with_decay_added(theta, gradient, rates)
    if "momentum" in rates:
        direction = slots["velocity"].mul_(rates["momentum"]).add_(direction)
    theta.addcmul_(rates["learning_rate"], direction, value=-1.0)


def _adam(theta: "Tensor", gradient: "Tensor", slots: Tensors, rates: Tensors) -> None:
    """Weight decay is added to the gradient. Source: Kingma & Ba 2015, algorithm 1."""
    _adam_step(theta, _with_decay_added(theta, gradient, rates), slots, rates)


def _adamw(theta: "Tensor", gradient: "Tensor", slots: Tensors, rates: Tensors) -> None:
    """Source: Loshchilov & Hutter 2019, algorithm 2."""
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
    else:  # the difference of bfloat16 numbers must be computed in float32, which `lerp_` cannot do
        first.addcmul_(weight, gradient.to(weight.dtype) - first)
    second.mul_(rates["beta_2"]).addcmul_(gradient * rates["weight_2"], gradient)
    root = second.sqrt().div_(rates["correction_2_root"]).add_(rates["adam_eps"])
    theta.sub_((first / root).mul_(rates["learning_rate"] / rates["correction_1"]))


_ADAM: dict[str, Any] = {
    "slots": {"first": "beta_1", "second": "beta_2"},
    "reads": ("weight_decay", "beta_2", "adam_eps"),
    "optional": ("weight_decay",),
    "constants": lambda *, beta_1, beta_2: {"weight_1": 1 - beta_1, "weight_2": 1 - beta_2},
    "corrections": lambda t, *, beta_1, beta_2: {
        "correction_1": 1 - beta_1**t,
        "correction_2_root": (1 - beta_2**t) ** 0.5,
    },
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
"""L-BFGS has no update rule: it evaluates a loss several times per step."""

_MAX_BETA = 0.999_999


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """Numbers where an update rule reads them. The engine applies schedule, warm-up and clipping before an update
    (`engine/first_order.py`)."""

    optimizer: str = parameter("sgd", "update rule", choices=OPTIMIZERS, static=True)
    learning_rate: float = parameter(1e-2, "step size; with lbfgs that of line searches: use 1, as PyTorch", above=0.0)
    learning_rate_schedule: str = parameter(
        "constant", "after warm-up constant, or a cosine to 0 at n_steps; not for lbfgs", choices=("constant", "cosine")
    )
    warmup_steps: int = parameter(0, "steps over which the learning rate rises linearly; not for lbfgs", low=0)
    momentum: float = parameter(0.0, "momentum of sgd", low=0.0, high=1.0)
    weight_decay: float = parameter(0.0, "added to the gradient, decoupled for adamw; not for lbfgs", low=0.0)
    gradient_clip_norm: float | None = parameter(
        None, "gradients with a larger norm are scaled down to this norm, but for lbfgs; null = none", above=0.0
    )
    beta_1: float = parameter(0.9, "adam, adamw: decay of the average of gradients", low=0.0, high=_MAX_BETA)
    beta_2: float = parameter(0.999, "adam, adamw: decay of the average of their squares", low=0.0, high=_MAX_BETA)
    adam_eps: float = parameter(1e-8, "adam, adamw: added to the root of that average, which divides steps", above=0.0)


_BY_ENGINE = ("learning_rate_schedule", "warmup_steps", "gradient_clip_norm")
READERS: Mapping[str, frozenset[str]] = {
    name: frozenset(
        optimizer for optimizer, rule in UPDATE_RULES.items() if name in (*rule.reads, *rule.computed_from, *_BY_ENGINE)
    )
    for name in (each.name for each in fields(Hyperparameters))
    if name not in ("optimizer", "learning_rate")
}
"""The optimizers that read a hyperparameter; the others ignore it."""
