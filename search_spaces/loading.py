"""Loads a sweep: a shipped one by its name, a user's from a Python or YAML file, or a stored one from `sweep.json`."""

import ast
import json
import traceback
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attnsweep.search_spaces.catalog import SHIPPED
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.search_spaces.yaml_text import line_of, read_yaml
from attnsweep.workloads.errors import SpecError, UserError, did_you_mean
from attnsweep.workloads.files import given_file
from attnsweep.workloads.user_code import load_module, users_code

_PYTHONS = {"True": True, "False": False, "None": None}


def shipped_names() -> list[str]:
    return list(SHIPPED)


def load_sweep(reference: str) -> Sweep:
    """The sweep that the command line's SPEC names. Raises a `UserError`."""
    if reference in SHIPPED:
        return SHIPPED[reference]
    path = Path(reference)
    if path.suffix == ".json":
        return _stored(path)
    if path.suffix in (".py", ".yaml", ".yml"):
        with at_line(reference):
            sweep = _made_by(path, reference) if path.suffix == ".py" else _written(path)
        return sweep.but(workload=beside(sweep.workload, path))
    shipped = ", ".join(shipped_names())
    raise UserError(
        "SPEC",
        given=reference,
        expected=f"a Python file with a function sweep(), a YAML file, a sweep.json, or a shipped sweep: {shipped}",
        fix=f"write: attnsweep run SPEC --set {reference}"
        if "=" in reference
        else did_you_mean(reference, shipped_names(), otherwise="list the shipped sweeps with: attnsweep specs"),
    )


@contextmanager
def at_line(reference: str, but: Container[str] = ()) -> Iterator[None]:
    """In this context a mistake in a sweep's file names its line, unless it is in a parameter of `but`."""
    try:
        yield
    except SpecError as error:
        path, parts = Path(reference), error.subject.removeprefix("space.").split(".")
        line = None if parts[0] in but or not path.is_file() else _line(path, error, parts[0])
        if line is None:
            raise
        subject = f"{path.name}, line {line}: {error.subject}"
        raise SpecError(subject, given=error.given, expected=error.expected, fix=error.fix) from error


def _line(path: Path, error: SpecError, name: str) -> int | None:
    if path.suffix != ".py":
        text = path.read_text()
        return line_of(text, error.subject) or line_of(text, f"space.{error.subject}")
    raised = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path.resolve()
    ]
    keys = (key for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Dict) for key in node.keys)
    named = [key.lineno for key in keys if isinstance(key, ast.Constant) and key.value == name]
    return next(iter([*named, *reversed(raised)]), None)


def assignments(texts: Iterable[str] | None) -> dict[str, Any]:
    """From texts `name=value`: values are JSON, Python's True, False or None, else text. Raises a `SpecError`."""
    values: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise SpecError("--set", given=text, expected="NAME=VALUE", fix="write for example --set init_sigma=0.1")
        try:
            values[name] = _PYTHONS[value] if value in _PYTHONS else json.loads(value)
        except ValueError:
            values[name] = value
        except RecursionError as error:
            fix = "give a value of one of these types"
            raise SpecError(name, given=value, expected="a number, a text, true, false or null", fix=fix) from error
    return values


def _made_by(path: Path, reference: str) -> Sweep:
    module = load_module(path)
    if not hasattr(module, "sweep"):
        expected = "a Python file that defines the function sweep()"
        fix = "add to the file: def sweep() -> Sweep"
        raise SpecError(reference, given="a file without a function sweep()", expected=expected, fix=fix)
    subject = f"{reference}: sweep()"
    with users_code(subject, "a function without arguments that returns an attnsweep.Sweep", "correct it"):
        sweep = module.sweep() if callable(module.sweep) else module.sweep
    if not isinstance(sweep, Sweep):
        raise SpecError(
            subject, given=sweep, expected="a function that returns an attnsweep.Sweep", fix="return a Sweep"
        )
    return sweep


def beside(workload: str, path: Path) -> str:
    """Makes the path in a workload `FILE.py:CLASS` absolute, from the spec's folder: resumed from anywhere."""
    place, colon, class_name = workload.rpartition(":")
    return f"{(path.resolve().parent / place)}:{class_name}" if colon and place.endswith(".py") else workload


def _written(path: Path) -> Sweep:
    try:
        return Sweep.from_json(json.dumps(read_yaml(given_file(path, "SPEC", "a YAML file").read_text())))
    except (OSError, ValueError) as error:
        raise UserError(
            "SPEC", given=str(path), expected="a YAML file with a sweep", fix=f"correct the file ({error})"
        ) from error


def _stored(path: Path) -> Sweep:
    file = given_file(path, "SPEC", "a JSON file")
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError("SPEC", given=str(path), expected="a JSON file", fix=f"correct the file ({error})") from error
    spec = content.get("spec", content) if isinstance(content, dict) else content
    return Sweep.from_json(json.dumps(spec))
