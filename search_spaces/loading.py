"""Loads a sweep: a shipped one by its name, a user's from a Python or YAML file, or a stored one from `sweep.json`."""

import functools
import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from attnsweep.search_spaces.sweep import Sweep
from attnsweep.search_spaces.yaml_text import read_yaml
from attnsweep.workloads.errors import SpecError, UserError, did_you_mean
from attnsweep.workloads.files import given_file
from attnsweep.workloads.user_code import load_module, users_code

_CATALOG = files("attnsweep.search_spaces") / "catalog"
_PYTHONS = {"True": True, "False": False, "None": None}


@functools.cache
def shipped_names() -> list[str]:
    return sorted(file.name.removesuffix(".yaml") for file in _CATALOG.iterdir() if file.name.endswith(".yaml"))


@functools.cache
def _shipped(name: str) -> Sweep:
    return Sweep.from_json(json.dumps(read_yaml(_shipped_text(name))))


def _shipped_text(name: str) -> str:
    return (_CATALOG / f"{name}.yaml").read_text(encoding="utf-8")


def sweep_text(reference: str) -> str:
    """A shipped sweep's file; another's JSON, which is YAML too."""
    return _shipped_text(reference) if reference in shipped_names() else load_sweep(reference).to_json()


def load_sweep(reference: str) -> Sweep:
    """The sweep that the command line's SPEC names. Raises a `UserError`."""
    if reference in shipped_names():
        return _shipped(reference)
    file, colon, named = reference.rpartition(":")
    path, function = (Path(file), named) if colon and file.endswith(".py") else (Path(reference), "sweep")
    if path.suffix == ".json":
        return _stored(path)
    if path.suffix in (".py", ".yaml", ".yml"):
        sweep = _made_by(path, function) if path.suffix == ".py" else _written(path)
        return sweep.but(workload=beside(sweep.workload, path))
    expected = "FILE.py with a function sweep(), FILE.py:FUNCTION, a YAML file, a sweep.json, or a shipped sweep"
    known = did_you_mean(reference, shipped_names(), otherwise="list the shipped sweeps with: attnsweep specs")
    fix = f"write: attnsweep run SPEC --set {reference}" if "=" in reference else known
    raise UserError("SPEC", given=reference, expected=expected, fix=fix)


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
            expected = "a number, a text, true, false or null"
            raise SpecError(name, given=value, expected=expected, fix="give one of these") from error
    return values


def _made_by(path: Path, function: str) -> Sweep:
    made = getattr(load_module(path), function, None)
    if made is None:
        expected, fix = f"a Python file that defines {function}()", f"add to the file: def {function}() -> Sweep"
        raise SpecError(str(path), given=f"a file without {function}()", expected=expected, fix=fix)
    subject = f"{path}: {function}()"
    with users_code(subject, "a function without arguments that returns an attnsweep.Sweep", "correct it"):
        sweep = made() if callable(made) else made
    if not isinstance(sweep, Sweep):
        expected = "a function that returns an attnsweep.Sweep"
        raise SpecError(subject, given=sweep, expected=expected, fix="return a Sweep")
    return sweep


def beside(workload: str, path: Path) -> str:
    """Makes the path in a workload `FILE.py:CLASS`, from the spec's folder, absolute, to resume from anywhere."""
    place, colon, class_name = workload.rpartition(":")
    return f"{(path.resolve().parent / place)}:{class_name}" if colon and place.endswith(".py") else workload


def _written(path: Path) -> Sweep:
    try:
        return Sweep.from_json(json.dumps(read_yaml(given_file(path, "SPEC", "a YAML file").read_text())))
    except (OSError, ValueError) as error:
        expected, fix = "a YAML file with a sweep", f"correct the file ({error})"
        raise UserError("SPEC", given=str(path), expected=expected, fix=fix) from error


def _stored(path: Path) -> Sweep:
    file = given_file(path, "SPEC", "a JSON file")
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError("SPEC", given=str(path), expected="a JSON file", fix=f"correct the file ({error})") from error
    spec = content.get("spec", content) if isinstance(content, dict) else content
    return Sweep.from_json(json.dumps(spec))
