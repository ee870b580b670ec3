"""Whether the class of a workload declares what the engine, the ledger and the reports read from it."""

import dataclasses
import typing

from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import KINDS, Parameter, TrainingParameters


def check_declarations(kind: type[Workload[typing.Any]]) -> None:
    """Checks a workload's class before it is used.

    Raises:
        SpecError: For the first declaration or method that is missing or of another kind.
    """
    subject = kind.__name__
    if missing := sorted(kind.__abstractmethods__):
        raise SpecError(
            subject,
            given=f"a class without {', '.join(missing)}",
            expected="every abstract method of Workload",
            fix=f"define {missing[0]}",
        )
    for name in ("name", "summary"):
        if not isinstance(getattr(kind, name, None), str):
            raise _refused(f"{subject}.{name}", getattr(kind, name, None), "a text")
    for name in ("level_names", "head_score_names", "head_layer_names"):
        _check_names(f"{subject}.{name}", getattr(kind, name, None))
    _check_parameters(f"{subject}.parameters", getattr(kind, "parameters", None))


def _check_names(subject: str, names: object) -> None:
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise _refused(subject, names, 'a tuple of different texts, such as ("zero", "mean")')


def _check_parameters(subject: str, declared: object) -> None:
    if not isinstance(declared, type) or not issubclass(declared, TrainingParameters):
        raise _refused(subject, declared, "a subclass of TrainingParameters")
    fields = {field.name: field for field in dataclasses.fields(declared)}
    for name in declared.__annotations__:
        if name not in fields and name in vars(declared) and isinstance(vars(declared)[name], dataclasses.Field):
            raise _refused(
                subject, declared.__name__, "a dataclass: put @dataclass(frozen=True, kw_only=True) above it"
            )
    for name, field in fields.items():
        if "parameter" not in field.metadata:
            raise _refused(f"{declared.__name__}.{name}", field.default, 'parameter(default, "what it is")')
    try:
        parameters = declared.declared()
    except (NameError, TypeError, StopIteration) as error:
        raise _refused(subject, declared.__name__, f"types that are known ({error})") from error
    for parameter in parameters.values():
        _check_parameter(f"{declared.__name__}.{parameter.name}", parameter)


def _check_parameter(subject: str, declared: Parameter) -> None:
    if declared.kind not in KINDS:
        raise _refused(subject, declared.kind, f"one of the types {', '.join(each.__name__ for each in KINDS)}")
    if declared.since is not None and declared.optional and declared.default is not None:
        # Null in a row may mean that its version did not declare the parameter.
        raise _refused(subject, declared.default, "None as default: the parameter is optional and came later")
    try:
        declared.accept(declared.default)
    except SpecError as error:
        raise _refused(subject, declared.default, f"a default that it accepts: {error.expected}") from error


def _refused(subject: str, given: object, expected: str) -> SpecError:
    return SpecError(subject, given=given, expected=expected, fix="correct the workload's declaration")
