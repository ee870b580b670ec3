"""A user's functions, whose arguments become parameters; and the losses and head scores that have names.
Axes: B example, T token."""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, NoneType
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from attnsweep.workloads.declaration import KINDS, parameter
from attnsweep.workloads.errors import SpecError, did_you_mean
from attnsweep.workloads.parameters import TrainingParameters, with_default

_COMMON = TrainingParameters.declared()
"""The parameters of every training."""


@dataclass(frozen=True, eq=False)
class Call:
    """A user's function, called with those of some values that its arguments name."""

    role: str
    function: Callable[..., Any]
    names: tuple[str, ...]

    @property
    def name(self) -> str:
        name = getattr(self.function, "__name__", "")
        return name if name.isidentifier() else self.role.rpartition(" ")[2]

    def __call__(self, values: Mapping[str, Any]) -> Any:
        if missing := [name for name in self.names if name not in values]:
            expected = "a parameter, or a tensor that `data` returns by name"
            fix = did_you_mean(missing[0], values, "give it a default, or let `data` return a dictionary with it")
            raise SpecError(f"{missing[0]} of {self.role}", given=missing[0], expected=expected, fix=fix)
        return self.function(**{name: values[name] for name in self.names})


def read_call(role: str, function: object) -> Call:
    """Refuses what is no function, or has arguments other than named ones."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    arguments = inspect.signature(function).parameters.values() if callable(function) else ()
    if not callable(function) or any(argument.kind not in named for argument in arguments):
        given = ", ".join(map(str, arguments)) or function
        expected, fix = "a Python function without positional-only arguments, *args and **kwargs", "list all by name"
        raise SpecError(role, given=given, expected=expected, fix=fix)
    return Call(role, function, tuple(argument.name for argument in arguments))


def parameters_class(
    name: str,
    supplied: Mapping[Call, frozenset[str]],
    reserved: frozenset[str],
    defaults: Mapping[str, object],
    always_static: Sequence[str] = (),
    more: Mapping[str, tuple[Any, Any]] = MappingProxyType({}),
) -> type[TrainingParameters]:
    """Makes a workload's parameter class from the arguments of the user's functions.

    Args:
        supplied: The functions, with the arguments of each that the engine supplies: no parameters.
        reserved: All that it supplies to some function, which may not name a parameter of another.
        always_static: The roles of functions whose parameters are all static.
        more: Further parameters: (type, field) by name.
    """
    fields: dict[str, tuple[Any, Any]] = dict(more)
    own_names = (reserved | {*dir(TrainingParameters)}) - _COMMON.keys()
    arguments = [
        (call.role, argument, hint, own)
        for call, own in supplied.items()
        for argument, hint in _arguments(call)
        if argument.name not in own
    ]
    for role, argument, hint, _ in arguments:
        common = _COMMON.get(argument.name)
        is_number = (
            common is None or common.static or (role != "model" and common.kind is float and not common.optional)
        )
        if argument.name in own_names or not is_number:
            expected = "a name that attnsweep passes to no other function; of a number in every training, or static"
            raise _refused(role, argument, argument.name, expected, "rename the argument")
        if argument.name not in more and common is None and argument.default is not argument.empty:
            declared = _declared(role, argument, hint, is_static=role in always_static)
            fields.setdefault(argument.name, declared)
    fields |= {parameter_name: _with_default(parameter_name, value) for parameter_name, value in defaults.items()}
    bases = (TrainingParameters,)
    columns = [(field_name, kind, field) for field_name, (kind, field) in fields.items()]
    parameters_type: type[TrainingParameters] = dataclasses.make_dataclass(
        f"{name}_parameters", columns, bases=bases, frozen=True, kw_only=True
    )
    declared_names = parameters_type.declared()
    for role, argument, hint, own in arguments:
        if argument.default is not argument.empty:
            default, given = declared_names[argument.name].default, argument.default
            if default != (given.default if isinstance(given, dataclasses.Field) else given):
                expected = f"no default here, or {default}, that of another function or of every training"
                raise _refused(role, argument, given, expected, "leave it out, or use `defaults` of at.problem")
        elif argument.name not in declared_names:
            close = did_you_mean(argument.name, {*own, *fields}, otherwise="")
            # Losses and what is measured may take tensors by the names that `data` gives them.
            if "target" not in own or (close and hint is not Tensor):
                expected = "an argument with a default, as n_layers: int = 2; or of a tensor of `data`, `: Tensor`"
                fix = close or f"give {argument.name} a default in this function, or in another with the same argument"
                raise _refused(role, argument, "an argument without one", expected, fix)
    return parameters_type


def _arguments(call: Call) -> Iterator[tuple[inspect.Parameter, Any]]:
    hints = typing.get_type_hints(call.function) if inspect.isroutine(call.function) else {}
    for argument in inspect.signature(call.function).parameters.values():
        yield argument, hints.get(argument.name)


def _refused(role: str, argument: inspect.Parameter, given: object, expected: str, fix: str) -> SpecError:
    return SpecError(f"{argument.name} of {role}", given=given, expected=expected, fix=fix)


def _declared(role: str, argument: inspect.Parameter, hint: Any, *, is_static: bool) -> tuple[Any, Any]:
    """Only floats that are never None differ within a pack: shapes, or an `is None`, may depend on all else."""
    field = argument.default
    choices = tuple(choice for choice in typing.get_args(hint) if isinstance(choice, str))
    if not isinstance(field, dataclasses.Field):
        field = parameter(field, f"argument of {role}")
    declared = {**field.metadata["parameter"]} | ({"choices": choices} if choices else {})
    members = (type(declared["default"]),) if hint is None else typing.get_args(hint) or (hint,)
    kinds = {str} if choices else {*members} - {NoneType}
    if len(kinds) != 1 or not kinds <= {*KINDS}:
        expected = f"a type among {', '.join(kind.__name__ for kind in KINDS)}, or one of these and None"
        raise _refused(role, argument, str(argument), expected, "annotate the argument, such as width: int = 16")
    (kind,) = kinds
    is_optional = NoneType in members
    declared["static"] = declared["static"] or is_static or is_optional or kind is not float
    if kind is float and isinstance(declared["default"], int):
        declared["default"] = float(declared["default"])
    field = dataclasses.field(default=declared["default"], metadata={"parameter": declared})
    return (kind | None if is_optional else kind), field


def _with_default(name: str, value: object) -> tuple[Any, Any]:
    """Another default for a parameter of every training."""
    known = _COMMON.get(name)
    if known is None:
        expected = f"the name of a parameter that every training has: {', '.join(_COMMON)}"
        fix = "to change the default of an argument of your own function, change it in the function's signature"
        raise SpecError("defaults", given=name, expected=expected, fix=fix)
    kind: Any = known.kind | None if known.optional else known.kind
    return kind, with_default(name, known.accept(value))


Values: TypeAlias = Mapping[str, Any]
"""What a loss may read: `module`, `inputs`, `target`, `output`, other tensors of `data`, and parameters."""
_IGNORED = -100
"""The target that cross-entropy and accuracy leave out: PyTorch's default `ignore_index`."""


@dataclass(frozen=True)
class Loss:
    """A loss of one training.

    Attributes:
        levels: The losses of predictors that ignore the inputs, by name, except that of the output 0.
        call: The user's function; `None` for a loss of `LOSSES`.
    """

    of: Callable[[Values], Tensor]
    metrics: Callable[[Values], dict[str, Tensor]]
    levels: Callable[[Values], dict[str, Tensor]]
    level_names: tuple[str, ...] = ()
    metric_names: tuple[str, ...] = ()
    call: Call | None = None

    @property
    def needs_output(self) -> bool:
        return self.call is None or "output" in self.call.names


def output_of(returned: Any) -> Tensor:
    output = getattr(returned, "logits", returned)
    output = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(output, Tensor):
        expected = "a tensor, a tuple whose first item is a tensor, or an object with `logits`"
        fix = "let the module's `forward` return the logits or the predictions"
        raise SpecError("the model's output", given=type(returned).__name__, expected=expected, fix=fix)
    return output


def read_loss(loss: object) -> Loss:
    if isinstance(loss, str):
        if loss not in LOSSES:
            known = " or ".join(map(repr, LOSSES))
            fix = did_you_mean(loss, LOSSES, otherwise="pass a function of output and target")
            expected = f"the name of a loss, {known}, or a function that computes a loss"
            raise SpecError("loss", given=loss, expected=expected, fix=fix)
        return LOSSES[loss]
    call = read_call("loss", loss)
    return Loss(of=call, metrics=lambda _: {}, levels=lambda _: {}, call=call)


def _class_scores(values: Values) -> tuple[Tensor, Tensor]:
    output, target = values["output"], values["target"]
    is_whole = not (target.is_floating_point() or target.is_complex() or target.dtype == torch.bool)
    if output.dim() < 2 or output.shape[:-1] != target.shape or not is_whole:
        expected = "whole numbers in the output's shape without its last axis, the classes"
        shares = "pass the loss lambda output, target: -(target * output.log_softmax(-1)).sum(-1).mean()"
        fix = shares if output.shape == target.shape else "return one class for each row of the output, as int64"
        raise _misfit("cross_entropy", output, target, expected, fix)
    return output, target.long()


def _numbers(values: Values) -> tuple[Tensor, Tensor]:
    output, target = values["output"], values["target"]
    if output.shape != target.shape or output.is_complex() or target.is_complex() or target.dtype == torch.bool:
        fix = f"reshape the target in `data`, to {tuple(output.shape)}, or the output in the module's `forward`"
        raise _misfit("mse", output, target, "real numbers in the output's shape", fix)
    return output, target


def _misfit(loss: str, output: Tensor, target: Tensor, expected: str, fix: str) -> SpecError:
    shapes = [f"{str(each.dtype).removeprefix('torch.')} of the shape {tuple(each.shape)}" for each in (output, target)]
    given = f"{loss} of an output {shapes[0]} and a target {shapes[1]}"
    return SpecError("loss", given=given, expected=f"a target of {expected}", fix=fix)


def _cross_entropy(values: Values) -> Tensor:
    """In nats, the mean over the targets but `_IGNORED`. The output's last axis is the classes."""
    output, target = _class_scores(values)
    return functional.cross_entropy(output.flatten(0, -2), target.flatten(), ignore_index=_IGNORED)


def _accuracy(values: Values) -> dict[str, Tensor]:
    output, target = _class_scores(values)
    counts = target != _IGNORED
    right = (output.argmax(-1) == target) & counts
    return {"accuracy": right.sum().to(output.dtype) / counts.sum()}


def _unigram(values: Values) -> dict[str, Tensor]:
    """The entropy of the targets' frequencies: the cross-entropy of the best constant predictor."""
    output, target = _class_scores(values)
    classes = torch.arange(output.shape[-1], device=target.device)
    # `vmap` does not support `torch.bincount`.
    count = (target.flatten().unsqueeze(-1) == classes).sum(0).to(output.dtype)
    return {"unigram": -torch.special.xlogy(count / count.sum(), count / count.sum()).sum()}


def _induction(weights: Tensor, inputs: Tensor, target: Tensor) -> Tensor:
    """Mean attention on the tokens after earlier copies of the current one, (layer, head), where the target counts."""
    is_wanted_BTT = (inputs.unsqueeze(2) == inputs.roll(1, 1).unsqueeze(1)).tril()
    is_wanted_BTT = is_wanted_BTT & (torch.arange(inputs.shape[1], device=inputs.device) > 0)
    is_wanted_BTT = is_wanted_BTT & (target != _IGNORED).unsqueeze(2)
    return (weights * is_wanted_BTT.unsqueeze(1)).sum((1, 3, 4)) / is_wanted_BTT.any(-1).sum()


HEADS: Mapping[str, Callable[..., Tensor]] = MappingProxyType(
    {"previous_token": lambda weights: weights.diagonal(-1, -2, -1).mean((1, 3)), "induction": _induction}
)
"""Scores of heads on tokens (example, token), by name."""


def _squared_error(values: Values) -> Tensor:
    output, target = _numbers(values)
    error: Tensor = output - target
    return error.square().mean()


def _mean(values: Values) -> dict[str, Tensor]:
    output, target = _numbers(values)
    target = target.to(output.dtype)
    return {"mean": (target - target.mean(0, keepdim=True)).square().mean()}


LOSSES: Mapping[str, Loss] = MappingProxyType(
    {
        "cross_entropy": Loss(
            of=_cross_entropy, metrics=_accuracy, levels=_unigram, level_names=("unigram",), metric_names=("accuracy",)
        ),
        "mse": Loss(of=_squared_error, metrics=lambda _: {}, levels=_mean, level_names=("mean",)),
    }
)
