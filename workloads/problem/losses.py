"""The losses that `attnsweep.problem` knows by name, with their metrics and reference levels, and users' own losses."""

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
"""The values from which a loss may be computed: `module`, `inputs`, `target`, `output` and parameters."""
_IGNORED = -100
"""Targets with this value are ignored by cross-entropy and accuracy: the `ignore_index` of PyTorch's cross-entropy."""


@dataclass(frozen=True)
class Loss:
    """A loss of one training, with the metrics and reference levels that go with it.

    Attributes:
        of: Computes the loss, a scalar.
        metrics: Computes further scalars to measure, by name.
        levels: Computes the losses of predictors that ignore the inputs, by name; the output 0 is not among them.
        level_names: The names of these levels.
        call: The user's function if the loss is not one of `LOSSES`.
    """

    of: Callable[[Values], Tensor]
    metrics: Callable[[Values], dict[str, Tensor]]
    levels: Callable[[Values], dict[str, Tensor]]
    level_names: tuple[str, ...] = ()
    call: Call | None = None

    @property
    def needs_output(self) -> bool:
        return self.call is None or "output" in self.call.names


def output_of(returned: Any) -> Tensor:
    """Extracts the output tensor from a forward pass's result: the tensor, its `logits`, or the first of several.

    Raises:
        SpecError: If there is no such tensor.
    """
    output = getattr(returned, "logits", returned)
    output = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(output, Tensor):
        raise SpecError(
            "the model's output",
            given=type(returned).__name__,
            expected="a tensor, a tuple whose first item is a tensor, or an object with `logits`",
            fix="let the module's `forward` return the logits or the predictions",
        )
    return output


def read_loss(loss: object) -> Loss:
    """Returns the loss with this name among `LOSSES`, or wraps a user's loss function.

    Raises:
        SpecError: If it is an unknown name, or neither a name nor a function.
    """
    if isinstance(loss, str):
        if loss not in LOSSES:
            known = " or ".join(map(repr, LOSSES))
            fix = did_you_mean(loss, LOSSES, otherwise="pass a function of output and target")
            raise SpecError(
                "loss", given=loss, expected=f"the name of a loss, {known}, or a function that computes a loss", fix=fix
            )
        return LOSSES[loss]
    call = read_call("loss", loss)
    return Loss(of=call, metrics=lambda _: {}, levels=lambda _: {}, call=call)


def _cross_entropy(values: Values) -> Tensor:
    """Computes the mean cross-entropy over all targets, in nats. The output's last axis is the classes."""
    output, target = values["output"], values["target"]
    return functional.cross_entropy(output.flatten(0, -2), target.flatten(), ignore_index=_IGNORED)


def _accuracy(values: Values) -> dict[str, Tensor]:
    output, target = values["output"], values["target"]
    counts = target != _IGNORED
    right = (output.argmax(-1) == target) & counts
    return {"accuracy": right.sum().to(output.dtype) / counts.sum()}


def _unigram(values: Values) -> dict[str, Tensor]:
    """Computes the entropy of the targets' frequencies, which is the loss of the best constant predictor."""
    output, target = values["output"], values["target"]
    classes = torch.arange(output.shape[-1], device=target.device)
    # Classes are counted by comparison, because `vmap` does not support `torch.bincount`.
    count = (target.flatten().unsqueeze(-1) == classes).sum(0).to(output.dtype)
    return {"unigram": -torch.special.xlogy(count / count.sum(), count / count.sum()).sum()}


def _squared_error(values: Values) -> Tensor:
    error: Tensor = values["output"] - values["target"]
    return error.square().mean()


def _mean(values: Values) -> dict[str, Tensor]:
    target = values["target"]
    return {"mean": (target - target.mean(0, keepdim=True)).square().mean()}


LOSSES: Mapping[str, Loss] = MappingProxyType(
    {
        "cross_entropy": Loss(of=_cross_entropy, metrics=_accuracy, levels=_unigram, level_names=("unigram",)),
        "mse": Loss(of=_squared_error, metrics=lambda _: {}, levels=_mean, level_names=("mean",)),
    }
)
