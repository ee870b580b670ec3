"""Reads the functions of a user's problem, makes their arguments parameters; and the losses given by name."""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from attnsweep.workloads.declaration import KINDS, parameter
from attnsweep.workloads.errors import SpecError, did_you_mean
from attnsweep.workloads.parameters import TrainingParameters

_COMMON = TrainingParameters.declared()
"""The parameters that the trainings of all workloads have."""


@dataclass(frozen=True)
class Call:
    """A user's function, which takes from a dictionary of values those that it names."""

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
    """Reads the names of a function's arguments; a `SpecError` for what is none, or has others than named ones."""
    if not callable(function):
        raise SpecError(
            role, given=function, expected="a Python function", fix="pass a function that is made by `def` or `lambda`"
        )
    arguments = inspect.signature(function).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if other := [str(argument) for argument in arguments if argument.kind not in named]:
        expected = "a function without positional-only arguments, *args and **kwargs"
        raise SpecError(role, given=other[0], expected=expected, fix="list all arguments of the function by name")
    return Call(role, function, tuple(argument.name for argument in arguments))


def parameters_class(
    name: str,
    calls: Mapping[str, Call],
    supplied: Mapping[str, frozenset[str]],
    reserved: frozenset[str],
    defaults: Mapping[str, object],
    always_static: Sequence[str] = (),
    more: Mapping[str, tuple[Any, Any]] = types.MappingProxyType({}),
) -> type[TrainingParameters]:
    """Makes a workload's parameter class from the arguments of the user's functions.

    Args:
        supplied: The arguments that the engine supplies to a function, by role: no parameters.
        reserved: Those that it supplies to any function, used or not.
        always_static: The roles of functions whose parameters are all static.
        more: Further parameters: (type, field) by name.
    """
    fields: dict[str, tuple[Any, Any]] = dict(more)
    without_default, known_before = [], []
    reserved = (reserved | {*dir(TrainingParameters)}) - _COMMON.keys()
    for role, call in calls.items():
        hints = typing.get_type_hints(call.function) if inspect.isroutine(call.function) else {}
        for argument in inspect.signature(call.function).parameters.values():
            if argument.name in supplied[role]:
                continue
            if argument.name in reserved:
                raise _refused_name(role, argument.name, "no value that attnsweep passes to another function")
            if argument.name in more or _is_common(role, argument.name):
                known_before.append((role, argument))
                continue
            if argument.default is argument.empty:
                without_default.append((argument.name, role, hints.get(argument.name) is Tensor))
                continue
            declared = _declared(role, argument, hints.get(argument.name), is_static=role in always_static)
            known = fields.setdefault(argument.name, declared)
            if known[1].default != declared[1].default:
                expected = f"the default {known[1].default} that the same argument has in another function"
                fix = f"give {argument.name} the same default in all functions"
                raise SpecError(f"{argument.name} of {role}", given=declared[1].default, expected=expected, fix=fix)
    for argument_name, role, is_tensor in without_default:
        close = did_you_mean(argument_name, {*supplied[role], *fields}, otherwise="")
        # Losses and what is measured may take tensors by the names that `data` gives them.
        is_of_data = "target" in supplied[role] and (is_tensor or not close)
        if argument_name not in fields and not is_of_data:
            expected = "an argument with a default, such as n_layers: int = 2; or of a tensor of `data`, `: Tensor`"
            fix = close or f"give {argument_name} a default in this function, or in another with the same argument"
            raise SpecError(f"{argument_name} of {role}", given="an argument without one", expected=expected, fix=fix)
    for parameter_name, value in defaults.items():
        fields[parameter_name] = _with_default(parameter_name, value)
    made: type[TrainingParameters] = dataclasses.make_dataclass(
        f"{name}_parameters",
        [(field_name, kind, field) for field_name, (kind, field) in fields.items()],
        bases=(TrainingParameters,),
        frozen=True,
        kw_only=True,
    )
    for role, argument in known_before:
        default = made.declared()[argument.name].default
        if argument.default not in (argument.empty, default):
            expected = f"no default here, or {default}: every training has this parameter"
            fix = "leave the default out; `defaults` of at.problem and a sweep's space change it"
            raise SpecError(f"{argument.name} of {role}", given=argument.default, expected=expected, fix=fix)
    return made


def _refused_name(role: str, name: str, meaning: str) -> SpecError:
    expected = f"an argument whose name means {meaning}, and is no name of attnsweep's own"
    return SpecError(f"{name} of {role}", given=name, expected=expected, fix="rename the argument")


def _is_common(role: str, name: str) -> bool:
    declared = _COMMON.get(name)
    if declared is None:
        return False
    if not declared.static and (role == "model" or declared.optional or declared.kind is not float):
        raise _refused_name(role, name, "a number in every training, or a static parameter")
    return True


def _declared(role: str, argument: inspect.Parameter, hint: Any, *, is_static: bool) -> tuple[Any, Any]:
    """All but numbers that are never null are static: shapes, or an `is None`, may depend on them."""
    subject, field = f"{argument.name} of {role}", argument.default
    choices = tuple(choice for choice in typing.get_args(hint) if isinstance(choice, str))
    if not isinstance(field, dataclasses.Field):
        field = parameter(field, f"argument of {role}", choices=choices or None)
    declared = dict(field.metadata["parameter"])
    members = _members(hint, declared["default"])
    kinds = {str} if choices else {member for member in members if member is not types.NoneType}
    if len(kinds) != 1 or not kinds <= {*KINDS}:
        expected = f"a type among {', '.join(kind.__name__ for kind in KINDS)}, or one of these and None"
        fix = "annotate the argument, such as width: int = 16"
        raise SpecError(subject, given=str(argument), expected=expected, fix=fix)
    (kind,) = kinds
    is_optional = types.NoneType in members
    declared["static"] = declared["static"] or is_static or is_optional or kind is not float
    if kind is float and isinstance(declared["default"], int):
        declared["default"] = float(declared["default"])
    field = dataclasses.field(default=declared["default"], metadata={"parameter": declared})
    return (kind | None if is_optional else kind), field


def _members(hint: Any, default: object) -> tuple[type, ...]:
    return (type(default),) if hint is None else typing.get_args(hint) or (hint,)


def _with_default(name: str, value: object) -> tuple[Any, Any]:
    """Gives one of the parameters that all workloads have another default."""
    known = _COMMON.get(name)
    if known is None:
        common = ", ".join(_COMMON)
        expected = f"the name of a parameter that every training has: {common}"
        fix = "to change the default of an argument of your own function, change it in the function's signature"
        raise SpecError("defaults", given=name, expected=expected, fix=fix)
    kind: Any = known.kind | None if known.optional else known.kind
    declared = {field.name: getattr(known, field.name) for field in dataclasses.fields(known)}
    declared |= {"default": known.accept(value)}
    metadata = {key: declared[key] for key in declared if key not in ("name", "kind", "optional")}
    return kind, dataclasses.field(default=declared["default"], metadata={"parameter": metadata})


Values: TypeAlias = Mapping[str, Any]
"""The values from which a loss may be computed: `module`, `inputs`, `target`, `output` and parameters."""
_IGNORED = -100
"""Targets with this value are ignored by cross-entropy and accuracy: the `ignore_index` of PyTorch's cross-entropy."""


@dataclass(frozen=True)
class Loss:
    """A loss of one training.

    Attributes:
        levels: The losses of simple predictors, which ignore the inputs, by name; the output 0 is not among them.
        call: The user's function if the loss is not one of `LOSSES`.
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
    """Returns the loss of this name in `LOSSES`, or makes one of the user's function."""
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
    if output.dim() < 2 or output.shape[:-1] != target.shape or not _is_whole(target):
        fix = "let `data` return one class for each row of the output, as int64"
        if output.shape == target.shape:
            shares = "lambda output, target: -(target * output.log_softmax(-1)).sum(-1).mean()"
            fix = f"for shares of classes, pass the loss {shares}"
        expected = "whole numbers in the output's shape without its last axis, the classes"
        raise _misfit("cross_entropy", output, target, expected, fix)
    return output, target.long()


def _numbers(values: Values) -> tuple[Tensor, Tensor]:
    output, target = values["output"], values["target"]
    if output.shape != target.shape or output.is_complex() or target.is_complex() or target.dtype == torch.bool:
        fix = f"reshape the target in `data`, to {tuple(output.shape)}, or the output in the module's `forward`"
        raise _misfit("mse", output, target, "real numbers in the output's shape", fix)
    return output, target


def _is_whole(value: Tensor) -> bool:
    return not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)


def _misfit(loss: str, output: Tensor, target: Tensor, expected: str, fix: str) -> SpecError:
    def described(value: Tensor) -> str:
        return f"{str(value.dtype).removeprefix('torch.')} of the shape {tuple(value.shape)}"

    given = f"{loss} of an output {described(output)} and a target {described(target)}"
    return SpecError("loss", given=given, expected=f"a target of {expected}", fix=fix)


def _cross_entropy(values: Values) -> Tensor:
    """Computes the mean cross-entropy over all targets, in nats. The output's last axis is the classes."""
    output, target = _class_scores(values)
    return functional.cross_entropy(output.flatten(0, -2), target.flatten(), ignore_index=_IGNORED)


def _accuracy(values: Values) -> dict[str, Tensor]:
    output, target = _class_scores(values)
    counts = target != _IGNORED
    right = (output.argmax(-1) == target) & counts
    return {"accuracy": right.sum().to(output.dtype) / counts.sum()}


def _unigram(values: Values) -> dict[str, Tensor]:
    """Computes the entropy of the targets' frequencies, which is the cross-entropy of the best constant predictor."""
    output, target = _class_scores(values)
    classes = torch.arange(output.shape[-1], device=target.device)
    # Classes are counted by comparisons, because `vmap` does not support `torch.bincount`.
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
            of=_cross_entropy,
            metrics=_accuracy,
            levels=_unigram,
            level_names=("unigram",),
            metric_names=("accuracy",),
        ),
        "mse": Loss(of=_squared_error, metrics=lambda _: {}, levels=_mean, level_names=("mean",)),
    }
)
