"""Loads a workload by a registered name, `module:Class` or `path/to/file.py:Class`, and checks its declarations."""

import dataclasses
import importlib
import importlib.metadata
import re
import typing
from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Any

from attnsweep.workloads.conditions import terms_of
from attnsweep.workloads.declaration import check_spelling
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.engine.verdicts import VerdictTable
from attnsweep.workloads.errors import SpecError, UserError, did_you_mean, in_words
from attnsweep.workloads.parameters import KINDS, TrainingParameters
from attnsweep.workloads.user_code import UserCode, read_user_code, user_file, users_code
from attnsweep.workloads.vocabulary import OUTCOMES, Outcome, with_own

ENTRY_POINT_GROUP = "attnsweep.workloads"
_LABEL = re.compile("[a-z][a-z0-9_]{0,39}")


def registered_names() -> list[str]:
    return sorted(entry.name for entry in _registered())


@cache
def _registered() -> importlib.metadata.EntryPoints:
    # Cached: to read them takes 10 ms.
    return importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)


def load_workload(reference: str, code: UserCode | None = None) -> Workload[Any]:
    """An instance of the class. Stored `code` takes the place of the user's files."""
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
    except BaseException as error:  # a user's module may raise any
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
    """Refuses a class at the first declaration or method that is missing or has the wrong type."""
    subject, own = kind.__name__, kind.outcomes
    if missing := sorted(kind.__abstractmethods__):
        expected, fix = "a class that defines every abstract method of Workload", f"define the method {missing[0]}"
        raise SpecError(subject, given=f"a class that lacks {', '.join(missing)}", expected=expected, fix=fix)
    for name in ("name", "summary"):
        _check(f"{subject}.{name}", getattr(kind, name, None), "a class attribute that is a string", str)
    for name in ("files", "level_names", "head_score_names"):
        _check_names(f"{subject}.{name}", getattr(kind, name, None))
    _check_outcomes(f"{subject}.outcomes", own)
    _check_verdicts(subject, getattr(kind, "verdicts", None), own)
    events = _check(
        f"{subject}.events", kind.events, 'a dictionary such as {"fits": "train_accuracy >= 0.99"}', Mapping
    )
    for name, when in events.items():
        _check_label(f"{subject}.events", name)
        if isinstance(when, str):
            terms_of(when)
        elif not callable(when):
            raise _refused(f"{subject}.events", when, "a condition: a text, or a function")
    _check_parameters(f"{subject}.parameters", getattr(kind, "parameters", None))


def _check(subject: str, given: Any, expected: str, kind: type) -> Any:
    if not isinstance(given, kind):
        raise _refused(subject, given, expected)
    return given


def _check_label(subject: str, label: object, *taken: str) -> None:
    if not isinstance(label, str) or not _LABEL.fullmatch(label) or label in taken:
        expected = " but none of ".join(["lower-case letters, digits and _", *([", ".join(taken)] if taken else [])])
        raise _refused(subject, label, expected)


def _check_names(subject: str, names: object) -> None:
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names) or "solved" in names:
        raise _refused(subject, names, 'a tuple of strings other than "solved", such as ("zero", "mean")')
    if len({*names}) < len(names):
        raise _refused(subject, names, "different names")
    check_spelling(subject, ("solved", *names))


def _check_outcomes(subject: str, own: object) -> None:
    expected = 'a dictionary such as {"memorized": attnsweep.Outcome("what it means")}'
    for label, outcome in _check(subject, own, expected, Mapping).items():
        _check_label(subject, label, *OUTCOMES, "stuck")
        _check(f"{subject}, {label}", outcome, "an attnsweep.Outcome", Outcome)


def _check_verdicts(subject: str, verdicts: object, own: Mapping[str, Outcome]) -> None:
    tables = [*verdicts.values()] if isinstance(verdicts, Mapping) else [verdicts]
    if not tables or not all(isinstance(table, VerdictTable) for table in tables):
        raise _refused(f"{subject}.verdicts", verdicts, "an attnsweep.VerdictTable, or one by variant")
    known = [name for name, outcome in with_own(own).items() if outcome.is_judged]
    given = {row.outcome for table in tables if isinstance(table, VerdictTable) for row in table.rows}
    for label in sorted(given - {*known}):
        expected = f"outcomes that the workload declares: {', '.join(known)}"
        fix = did_you_mean(label, known, f"declare it: outcomes = {{{label!r}: attnsweep.Outcome(...)}}")
        raise SpecError(f"{subject}.verdicts", given=label, expected=expected, fix=fix)
    for label in (label for label in own if label not in given):
        raise _refused(f"{subject}.outcomes", label, "outcomes that a row of the table of verdicts gives")


def _check_parameters(subject: str, declared: object) -> None:
    if not isinstance(declared, type) or not issubclass(declared, TrainingParameters):
        raise _refused(subject, declared, "a subclass of TrainingParameters")
    own_names = {*dir(TrainingParameters)} - TrainingParameters.declared().keys()
    fields = {field.name: field for field in dataclasses.fields(declared)}
    for name in (*declared.__annotations__, *fields):
        if name not in fields and isinstance(vars(declared).get(name), dataclasses.Field):
            raise _refused(subject, declared.__name__, "a class with @dataclass(frozen=True, kw_only=True)")
        if name in fields and (name in own_names or "parameter" not in fields[name].metadata):
            expected = 'a field declared by parameter(default, "its meaning"), whose name TrainingParameters has not'
            raise _refused(f"{declared.__name__}.{name}", name, expected)
    try:
        parameters = declared.declared()
    except (NameError, TypeError, StopIteration) as error:
        raise _refused(subject, declared.__name__, f"field annotations that Python can resolve ({error})") from error
    check_spelling(declared.__name__, parameters)
    for name, each in parameters.items():
        if each.kind not in KINDS:
            raise _refused(f"{declared.__name__}.{name}", each.kind, "a field of type float, int, bool or str")
        try:
            each.accept(each.default)
        except SpecError as error:
            expected = f"a default that the parameter accepts: {error.expected}"
            raise _refused(f"{declared.__name__}.{name}", each.default, expected) from error


def _refused(subject: str, given: object, expected: str) -> SpecError:
    return SpecError(subject, given=given, expected=expected, fix="correct the workload's declaration")
