"""The arguments of a user's functions as the parameters of a workload."""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnsweep.workloads.declaration import KINDS, parameter
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import TrainingParameters

_OF_EVERY_TRAINING = TrainingParameters.declared()


@dataclass(frozen=True)
class Call:
    """A user's function, called with those of some values that it names as arguments.

    Attributes:
        function: The function.
        names: Its arguments.
    """

    function: Callable[..., Any]
    names: tuple[str, ...]

    def __call__(self, values: Mapping[str, Any]) -> Any:
        return self.function(**{name: values[name] for name in self.names})


def read_call(role: str, function: object) -> Call:
    """A function with its arguments.

    Args:
        role: What it is for, in messages.
        function: What the user gave.

    Raises:
        SpecError: If it is no function, or takes arguments that cannot be named.
    """
    if not callable(function):
        raise SpecError(role, given=function, expected="a function", fix="give one, such as a `def` or a `lambda`")
    arguments = inspect.signature(function).parameters.values()
    if other := [str(each) for each in arguments if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]:
        raise SpecError(role, given=other[0], expected="arguments with names", fix="name each argument")
    return Call(function, tuple(each.name for each in arguments))


def parameters_class(
    name: str,
    calls: Mapping[str, Call],
    given: Mapping[str, frozenset[str]],
    defaults: Mapping[str, object],
    always_static: Sequence[str] = (),
    more: Mapping[str, tuple[Any, Any]] = types.MappingProxyType({}),
) -> type[TrainingParameters]:
    """The declaration of the parameters that functions name as arguments.

    Args:
        name: Of the problem.
        calls: The functions, by what they are for.
        given: The arguments of each that are no parameters.
        defaults: Other defaults of the parameters of every training.
        always_static: Functions all of whose parameters are static.
        more: Further parameters: (type, field) by name.

    Raises:
        SpecError: For a parameter without a default, of an unknown type, or with two defaults.
    """
    fields: dict[str, tuple[Any, Any]] = dict(more)
    without_default = []
    for role, call in calls.items():
        hints = typing.get_type_hints(call.function) if inspect.isroutine(call.function) else {}
        for argument in inspect.signature(call.function).parameters.values():
            if argument.name in given[role] or argument.name in more or _is_of_every_training(role, argument.name):
                continue
            if argument.default is argument.empty:
                without_default.append((argument.name, role))
                continue
            declared = _declared(role, argument, hints.get(argument.name), is_static=role in always_static)
            known = fields.setdefault(argument.name, declared)
            if known[1].default != declared[1].default:
                raise SpecError(
                    f"{argument.name} of {role}",
                    given=declared[1].default,
                    expected=f"{known[1].default}, the default that another function gives it",
                    fix="give it one default",
                )
    for each, role in without_default:
        if each not in fields:
            raise SpecError(
                f"{each} of {role}",
                given="an argument without a default",
                expected="a parameter with a default, such as n_layers: int = 2",
                fix="give it a default here, or in another function that names it",
            )
    for each, value in defaults.items():
        fields[each] = _with_default(each, value)
    return dataclasses.make_dataclass(
        f"{name}_parameters",
        [(each, kind, field) for each, (kind, field) in fields.items()],
        bases=(TrainingParameters,),
        frozen=True,
        kw_only=True,
    )


def _is_of_every_training(role: str, name: str) -> bool:
    """Whether an argument is a parameter that every training has; what is not static a module is not made of."""
    if name not in _OF_EVERY_TRAINING:
        return False
    if role == "model" and not _OF_EVERY_TRAINING[name].static:
        raise SpecError(
            f"{name} of model", given=name, expected="a parameter of the model's own", fix="give it another name"
        )
    return True


def _declared(role: str, argument: inspect.Parameter, hint: Any, *, is_static: bool) -> tuple[Any, Any]:
    """The type and the field of one argument. Whole numbers, names and switches are static: they may change a shape."""
    subject, field = f"{argument.name} of {role}", argument.default
    choices = tuple(each for each in typing.get_args(hint) if isinstance(each, str))
    if not isinstance(field, dataclasses.Field):
        field = parameter(field, f"argument of {role}", choices=choices or None)
    declared = dict(field.metadata["parameter"])
    kinds = {str} if choices else {each for each in _members(hint, declared["default"]) if each is not types.NoneType}
    if len(kinds) != 1 or not kinds <= {*KINDS}:
        raise SpecError(
            subject,
            given=str(argument),
            expected=f"one of the types {', '.join(kind.__name__ for kind in KINDS)}, or one of them and None",
            fix="annotate it, such as width: int = 16",
        )
    (kind,) = kinds
    declared["static"] = declared["static"] or is_static or kind is not float
    if kind is float and isinstance(declared["default"], int):
        declared["default"] = float(declared["default"])
    is_optional = types.NoneType in _members(hint, declared["default"])
    field = dataclasses.field(default=declared["default"], metadata={"parameter": declared})
    return (kind | None if is_optional else kind), field


def _members(hint: Any, default: object) -> tuple[type, ...]:
    return (type(default),) if hint is None else typing.get_args(hint) or (hint,)


def _with_default(name: str, value: object) -> tuple[Any, Any]:
    """A parameter of every training with another default, which is part of each training's identity."""
    known = _OF_EVERY_TRAINING.get(name)
    if known is None:
        raise SpecError(
            "defaults",
            given=name,
            expected=f"parameters that every training has: {', '.join(_OF_EVERY_TRAINING)}",
            fix="write the default of a parameter of your own where the function declares it",
        )
    kind: Any = known.kind | None if known.optional else known.kind
    declared = {each.name: getattr(known, each.name) for each in dataclasses.fields(known)}
    declared |= {"default": known.accept(value), "since": None}
    metadata = {key: declared[key] for key in declared if key not in ("name", "kind", "optional")}
    return kind, dataclasses.field(default=declared["default"], metadata={"parameter": metadata})
