"""Loads a workload by a registered name, `module:Class` or `path/to/file.py:Class`, and checks its declarations."""

import dataclasses
import importlib
import importlib.metadata
import re
import typing
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from itertools import combinations
from types import ModuleType
from typing import Any

from attnsweep.workloads.conditions import implies, terms_of
from attnsweep.workloads.declaration import check_spelling
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.engine.verdicts import Rule, VerdictTable
from attnsweep.workloads.errors import SpecError, UserError, did_you_mean, in_words
from attnsweep.workloads.parameters import KINDS, Parameter, TrainingParameters
from attnsweep.workloads.user_code import UserCode, read_user_code, user_file, users_code
from attnsweep.workloads.vocabulary import OUTCOMES, Outcome, with_own

ENTRY_POINT_GROUP = "attnsweep.workloads"
_LABEL = re.compile("[a-z][a-z0-9_]{0,39}")
_COLOUR = re.compile("(#[0-9A-Fa-f]{6})?")


def registered_names() -> list[str]:
    return sorted(entry.name for entry in _registered())


@cache
def _registered() -> importlib.metadata.EntryPoints:
    # The entry points of all installed packages are cached, because reading them takes 10 ms.
    return importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)


def parameters_of_others(workload: str) -> dict[str, type[TrainingParameters]]:
    """The parameter classes of all other registered workloads that can be loaded."""
    parameters = {}
    for name in registered_names():
        if name != workload:
            with suppress(UserError):
                parameters[name] = load_workload(name).parameters
    return parameters


def load_workload(reference: str, code: UserCode | None = None) -> Workload[Any]:
    """An instance of a workload's class, imported by its name, or by stored `code` in place of the user's files."""
    entry = next(iter(_registered().select(name=reference)), None)
    target = f"{entry.module}:{entry.attr}" if entry else reference
    place, colon, class_name = target.rpartition(":")
    if (file := user_file(target)) is not None:
        module = (code or read_user_code(file)).load(str(file) if code is None else None)
    elif colon and all(part.isidentifier() for part in place.split(".")):
        module = _imported(place, class_name, reference)
    else:
        names = ", ".join(registered_names())
        expected = f"module:Class, file.py:Class, or the name of an installed workload: {names}"
        fix = did_you_mean(reference, registered_names(), "correct the name, or install the workload's package")
        raise SpecError("workload", given=reference, expected=expected, fix=fix)
    return _instance(module, class_name, reference)


def _imported(place: str, class_name: str, reference: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # Importing a user's module may raise any exception.
        if isinstance(error, ModuleNotFoundError) and f"{place}.".startswith(f"{error.name}."):
            expected = "module:Class of an installed module (modules in the current directory are not found)"
            fix = f"install the module's package; or, for a file beside the sweep's file, write file.py:{class_name}"
            raise SpecError("workload", given=reference, expected=expected, fix=fix) from error
        given = f"the workload {reference}, whose module raised {in_words(error)}"
        fix = f"correct the module; to see where it fails: python -c 'import {place}'"
        raise SpecError("workload", given=given, expected="a module that can be imported", fix=fix) from error


def _instance(module: ModuleType, class_name: str, reference: str) -> Workload[Any]:
    if not hasattr(module, class_name):
        defined = sorted(name for name, value in vars(module).items() if _is_workload(value) and value is not Workload)
        classes = ", ".join(defined)
        expected = "the name of a workload that the module defines: " + (classes or "none")
        fix = f"correct the name {class_name}, or define the class {class_name}"
        raise SpecError("workload", given=reference, expected=expected, fix=fix)
    kind = getattr(module, class_name)
    if not _is_workload(kind):
        fix = "give the name of the class, not of an instance or a function"
        raise SpecError("workload", given=reference, expected="a subclass of attnsweep.Workload", fix=fix)
    check_declarations(kind)
    with users_code(reference, "a class that is made without arguments", "correct its __init__, or leave it out"):
        workload: Workload[Any] = kind()
    return workload


def _is_workload(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Workload)


def check_declarations(kind: type[Workload[typing.Any]]) -> None:
    """Refuses a workload's class at the first declaration or method that is missing or has the wrong type."""
    subject = kind.__name__
    if missing := sorted(kind.__abstractmethods__):
        methods = ", ".join(missing)
        expected = "a class that defines every abstract method of Workload"
        fix = f"define the method {missing[0]}"
        raise SpecError(subject, given=f"a class that lacks {methods}", expected=expected, fix=fix)
    for name in ("name", "summary"):
        if not isinstance(getattr(kind, name, None), str):
            raise _refused(f"{subject}.{name}", getattr(kind, name, None), "a class attribute that is a string")
    for name in ("files", "level_names", "head_score_names"):
        _check_names(f"{subject}.{name}", getattr(kind, name, None))
    _check_outcomes(f"{subject}.outcomes", kind.outcomes)
    _check_verdicts(subject, getattr(kind, "verdicts", None), kind.outcomes)
    _check_events(f"{subject}.events", kind.events)
    _check_parameters(f"{subject}.parameters", getattr(kind, "parameters", None))


def _check_names(subject: str, names: object) -> None:
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise _refused(subject, names, 'a tuple of different strings, such as ("zero", "mean")')
    if "solved" in names:
        raise _refused(subject, "solved", "other names: every workload has the level `solved`")
    check_spelling(subject, ("solved", *names))


def _check_outcomes(subject: str, own: object) -> None:
    if not isinstance(own, Mapping) or not all(isinstance(outcome, Outcome) for outcome in own.values()):
        raise _refused(subject, own, 'a dictionary such as {"memorized": attnsweep.Outcome("what it means")}')
    for label, outcome in own.items():
        if not isinstance(label, str) or not _LABEL.fullmatch(label) or label in (*OUTCOMES, "stuck"):
            labels = ", ".join(OUTCOMES)
            expected = f"lower-case letters, digits and _, but not the built-in labels {labels} and stuck"
            raise _refused(subject, label, expected)
        if not isinstance(outcome.sentence, str) or not outcome.sentence.strip():
            raise _refused(f"{subject}, {label}", outcome.sentence, "a sentence that says what the outcome means")
        if not isinstance(outcome.colour, str) or not _COLOUR.fullmatch(outcome.colour):
            expected = 'a colour such as "#1f77b4", or "" for an automatic colour'
            raise _refused(f"{subject}, {label}", outcome.colour, expected)
        if not outcome.is_judged:
            expected = "is_judged=True, because the workload's table of verdicts gives this outcome"
            raise _refused(f"{subject}, {label}", "is_judged=False", expected)


def _check_verdicts(subject: str, verdicts: object, own: Mapping[str, Outcome]) -> None:
    given_tables = [*verdicts.values()] if isinstance(verdicts, Mapping) else [verdicts]
    tables = [table for table in given_tables if isinstance(table, VerdictTable)]
    if not tables or len(tables) < len(given_tables):
        raise _refused(f"{subject}.verdicts", verdicts, "an attnsweep.VerdictTable, or one by variant")
    known = [name for name, outcome in with_own(own).items() if outcome.is_judged]
    given = {row.outcome for table in tables for row in table.rows}
    for label in sorted(given - {*known}):
        expected = f"outcomes that the workload declares: {', '.join(known)}"
        fix = did_you_mean(label, known, f"declare it: outcomes = {{{label!r}: attnsweep.Outcome(...)}}")
        raise SpecError(f"{subject}.verdicts", given=label, expected=expected, fix=fix)
    for label in (label for label in own if label not in given):
        raise _refused(f"{subject}.outcomes", label, "outcomes that a row of the table of verdicts gives")
    for table in tables:
        texts = [(row.outcome, row.when) for row in table.rows if isinstance(row, Rule) and isinstance(row.when, str)]
        for (outcome, when), (later, later_when) in combinations(texts, 2):
            if implies(later_when, when):
                expected = f"a condition that does not imply {when}, that of the earlier row {outcome}"
                fix = "exchange the rows or change a condition: the first that holds decides"
                raise SpecError(f"the outcome {later} of {subject}", given=later_when, expected=expected, fix=fix)


def _check_events(subject: str, events: object) -> None:
    if not isinstance(events, Mapping) or not all(isinstance(when, str) or callable(when) for when in events.values()):
        raise _refused(subject, events, 'a dictionary such as {"fits": "train_accuracy >= 0.99"}')
    for name, when in events.items():
        if not isinstance(name, str) or not _LABEL.fullmatch(name):
            raise _refused(subject, name, "the name of an event in lower-case letters, digits and _")
        if isinstance(when, str):
            terms_of(when)


def _check_parameters(subject: str, declared: object) -> None:
    if not isinstance(declared, type) or not issubclass(declared, TrainingParameters):
        raise _refused(subject, declared, "a subclass of TrainingParameters")
    fields = {field.name: field for field in dataclasses.fields(declared)}
    for name in declared.__annotations__:
        if name not in fields and name in vars(declared) and isinstance(vars(declared)[name], dataclasses.Field):
            raise _refused(
                subject, declared.__name__, "a class with the decorator @dataclass(frozen=True, kw_only=True)"
            )
    own_names = {*dir(TrainingParameters)} - {field.name for field in dataclasses.fields(TrainingParameters)}
    for name, field in fields.items():
        if name in own_names:
            raise _refused(f"{declared.__name__}.{name}", name, "a name that TrainingParameters has not itself")
        if "parameter" not in field.metadata:
            raise _refused(
                f"{declared.__name__}.{name}", field.default, 'a field declared by parameter(default, "its meaning")'
            )
    try:
        parameters = declared.declared()
    except (NameError, TypeError, StopIteration) as error:
        raise _refused(subject, declared.__name__, f"field annotations that Python can resolve ({error})") from error
    check_spelling(declared.__name__, parameters)
    for parameter in parameters.values():
        _check_parameter(f"{declared.__name__}.{parameter.name}", parameter)


def _check_parameter(subject: str, declared: Parameter) -> None:
    if declared.kind not in KINDS:
        types = ", ".join(kind.__name__ for kind in KINDS)
        raise _refused(subject, declared.kind, f"a field of one of the types {types}")
    try:
        declared.accept(declared.default)
    except SpecError as error:
        raise _refused(subject, declared.default, f"a default that the parameter accepts: {error.expected}") from error


def _refused(subject: str, given: object, expected: str) -> SpecError:
    return SpecError(subject, given=given, expected=expected, fix="correct the workload's declaration")
