"""The losses that a problem may name, with the metrics and reference levels that belong to them; and one's own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from attnsweep.workloads.errors import SpecError, did_you_mean
from attnsweep.workloads.problem.arguments import Call, read_call

Values: TypeAlias = Mapping[str, Any]
"""What a loss may be computed from: `module`, `inputs`, `target`, `output` and parameters."""
_IGNORED = -100
"""Targets that count in no cross-entropy, as in `torch.nn.functional.cross_entropy`."""


@dataclass(frozen=True)
class Loss:
    """A loss of one training.

    Attributes:
        of: The loss, a scalar.
        metrics: Scalars to measure beside it, by name.
        levels: The loss of predictors that do not look at the inputs, but for the output 0, by name.
        level_names: Their names.
        call: The user's function, for a loss of one's own.
    """

    of: Callable[[Values], Tensor]
    metrics: Callable[[Values], dict[str, Tensor]]
    levels: Callable[[Values], dict[str, Tensor]]
    level_names: tuple[str, ...] = ()
    call: Call | None = None

    @property
    def needs_output(self) -> bool:
        """Whether it is computed from the module's output."""
        return self.call is None or "output" in self.call.names


def output_of(returned: Any) -> Tensor:
    """The tensor that a module's forward pass is for: what it returns, its `logits`, or the first of several."""
    output = getattr(returned, "logits", returned)
    output = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(output, Tensor):
        raise SpecError(
            "the model's output",
            given=type(returned).__name__,
            expected="a tensor, a tuple whose first item is one, or an object with `logits`",
            fix="return the logits, or the predictions, from `forward`",
        )
    return output


def read_loss(loss: object) -> Loss:
    """The loss of this name, or a function of `output`, `target`, `inputs`, `module` and parameters.

    Raises:
        SpecError: For an unknown name, or what is neither a name nor a function.
    """
    if isinstance(loss, str):
        if loss not in LOSSES:
            known = " or ".join(map(repr, LOSSES))
            fix = did_you_mean(loss, LOSSES, otherwise="give a function of output and target")
            raise SpecError("loss", given=loss, expected=f"{known}, or a function", fix=fix)
        return LOSSES[loss]
    call = read_call("loss", loss)
    return Loss(of=call, metrics=lambda _: {}, levels=lambda _: {}, call=call)


def _cross_entropy(values: Values) -> Tensor:
    """The mean over all targets, in nats; classes are the output's last axis."""
    output, target = values["output"], values["target"]
    return functional.cross_entropy(output.flatten(0, -2), target.flatten(), ignore_index=_IGNORED)


def _accuracy(values: Values) -> dict[str, Tensor]:
    output, target = values["output"], values["target"]
    counts = target != _IGNORED
    right = (output.argmax(-1) == target) & counts
    return {"accuracy": right.sum().to(output.dtype) / counts.sum()}


def _unigram(values: Values) -> dict[str, Tensor]:
    """The entropy of the targets' frequencies: the loss of the best constant predictor."""
    output, target = values["output"], values["target"]
    classes = torch.arange(output.shape[-1], device=target.device)
    # Class by class, because `bincount` has no rule for `vmap`.
    count = (target.flatten().unsqueeze(-1) == classes).sum(0).to(output.dtype)
    return {"unigram": -torch.special.xlogy(count / count.sum(), count / count.sum()).sum()}


def _squared_error(values: Values) -> Tensor:
    off: Tensor = values["output"] - values["target"]
    return off.square().mean()


def _mean(values: Values) -> dict[str, Tensor]:
    target = values["target"]
    return {"mean": (target - target.mean(0, keepdim=True)).square().mean()}


LOSSES: Mapping[str, Loss] = MappingProxyType(
    {
        "cross_entropy": Loss(of=_cross_entropy, metrics=_accuracy, levels=_unigram, level_names=("unigram",)),
        "mse": Loss(of=_squared_error, metrics=lambda _: {}, levels=_mean, level_names=("mean",)),
    }
)
