"""Reads YAML 1.2, in which `on` is a text and `1e-3` a number, as in JSON."""

from collections.abc import Mapping

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from attnsweep.workloads.errors import SpecError


def read_yaml(text: str) -> object:
    """Raises a `ValueError` for a text that is none or a key given twice, a `SpecError` for another type, such as a
    date."""
    try:
        values: object = YAML(typ="safe", pure=True).load(text)
        _check(values, "")
    except (YAMLError, RecursionError) as error:
        raise ValueError(_in_words(error)) from error
    return values


def _check(value: object, place: str) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            _check(name, f"{place}.{name}".lstrip("."))
            _check(item, f"{place}.{name}".lstrip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, f"{place}.{index}".lstrip("."))
    elif not isinstance(value, bool | int | float | str | None):
        expected = f"a text, a number, true, false or null, not a {type(value).__name__}"
        raise SpecError(place, given=str(value), expected=expected, fix=f'for a text write "{value}", in quotes')


def _in_words(error: Exception) -> str:
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    return f"{problem}, line {mark.line + 1}" if problem and mark else "it is no YAML, or nested too deeply"
