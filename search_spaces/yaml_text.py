"""Reads and writes YAML 1.2, in which `on` is a text and `1e-3` a number, as in JSON."""

import io
import re
from collections.abc import Mapping, Sequence

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from attnsweep.workloads.errors import SpecError

_WIDTH = 120
_VARIABLE = re.compile(r"\$\{[^}]*\}")


def read_yaml(text: str) -> object:
    """YAML 1.2. Raises a `ValueError` for a text that is none or a key given twice, a `SpecError` for another type,
    such as a date, or a variable of the environment."""
    try:
        values: object = YAML(typ="safe", pure=True).load(text)
        _check(values, "")
    except (YAMLError, RecursionError) as error:
        raise ValueError(_in_words(error)) from error
    return values


def line_of(text: str, place: str) -> int | None:
    """Returns the line of a field of YAML such as `space.init_sigma.low`, or of the part of this place that exists;
    `None` if its first part is missing."""
    node, line = YAML(typ="safe", pure=True).compose(text), None
    while isinstance(node, MappingNode):
        found = next((pair for pair in node.value if f"{place}.".startswith(f"{pair[0].value}.")), None)
        if found is None:
            break
        key, node = found
        line, place = key.start_mark.line + 1, place[len(key.value) + 1 :]
    return line


def _check(value: object, place: str) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            _check(name, f"{place}.{name}".lstrip("."))
            _check(item, f"{place}.{name}".lstrip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, f"{place}.{index}".lstrip("."))
    elif isinstance(value, str) and (variable := _VARIABLE.search(value)):
        expected = "a value, because variables of the environment are not read"
        fix = f"write --set NAME={variable[0]} on the command line, or write the file with envsubst"
        raise SpecError(place, given=value, expected=expected, fix=fix)
    elif not isinstance(value, bool | int | float | str | None):
        expected = f"a text, a number, true, false or null, not a {type(value).__name__}"
        raise SpecError(place, given=str(value), expected=expected, fix=f'for a text write "{value}", in quotes')


def yaml_text(values: Mapping[str, object]) -> str:
    """Formats values as YAML. Texts are quoted, so that YAML 1.1 parsers do not read `on` and `no` as booleans."""
    writer = YAML()
    writer.Representer = _Representer
    writer.width = _WIDTH
    written = io.StringIO()
    writer.dump(_styled(values), written)
    return written.getvalue()


class _Representer(RoundTripRepresenter):
    """A YAML writer that writes null as `null`. The library's own would write an empty text."""


_Representer.add_representer(
    type(None), lambda representer, _: representer.represent_scalar("tag:yaml.org,2002:null", "null")
)


def _styled(value: object) -> object:
    if isinstance(value, str):
        return DoubleQuotedScalarString(value)
    if isinstance(value, Mapping):
        return {_styled(name) if name == "on" else name: _styled(item) for name, item in value.items()}
    if isinstance(value, Sequence):
        items = CommentedSeq([_styled(item) for item in value])
        items.fa.set_flow_style()
        return items
    return value


def _in_words(error: Exception) -> str:
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    return f"{problem}, line {mark.line + 1}" if problem and mark else "it is no YAML, or nested too deeply"
