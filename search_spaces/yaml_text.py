"""Reads and writes YAML 1.2, in which `on` is a text and `1e-3` a number, as in JSON."""

import io
from collections.abc import Mapping, Sequence

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

_WIDTH = 120


def read_yaml(text: str) -> object:
    """Parses YAML 1.2 into mappings, lists, texts, numbers, booleans and null.

    Raises:
        ValueError: If the text is not YAML, or if a mapping has a key twice.
    """
    try:
        return YAML(typ="safe", pure=True).load(text)
    except (YAMLError, RecursionError) as error:
        raise ValueError(_in_words(error)) from error


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
