"""Base classes of answers, which are shown as JSON, one line, HTML in notebooks, and tables."""

import base64
import dataclasses
import html
import io
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import pyarrow as pa

from attnsweep.orchestrator.analysis.labels import clipped
from attnsweep.orchestrator.terminal import plain
from attnsweep.workloads.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TableFormat: TypeAlias = Literal["arrow", "pandas", "polars"]

MOST_CHARACTERS = 300
"""The most characters of the line of text that an answer is printed as."""
_MOST_ROWS, _MOST_IN_A_CELL = 20, 120
_PIXELS_PER_INCH = 80
_FORMATS = ("arrow", "pandas", "polars")
_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64()}
_LEFT, _RIGHT = ' style="text-align: left"', ' style="text-align: right"'


class Record:
    """A dataclass that can be written as JSON: all fields, or the attributes in `json_keys`.

    Implementers: declare a dataclass. If the JSON keys are to differ from the fields, list the keys in `json_keys`:
    `share` is an attribute under its own name, `stuck_rate=stuck` one under another key,
    `difference_is_shown=rate.is_shown` an attribute of an attribute, and `**rate` adds all keys of the record `rate`.
    """

    __slots__ = ()

    json_keys: ClassVar[tuple[str, ...]] = ()

    def as_json(self) -> Any:
        """Numbers that are not finite become null."""
        fields: dict[str, Any] = {}
        for entry in self.json_keys or _field_names(self):
            key, _, attribute = entry.removeprefix("**").partition("=")
            value = _json_value(attrgetter(attribute or key)(self))
            fields |= value if entry.startswith("**") else {key: value}
        return fields

    def to_json(self) -> str:
        """One line, for scripts."""
        return json_line(self)


class Answer(ABC):
    """An answer to a question about a sweep: the numbers are attributes, and a notebook shows them as a table.

    Implementers: declare a dataclass with `repr=False`, so that all answers print as one line.
    """

    __slots__ = ()

    @abstractmethod
    def _in_words(self) -> str:
        """One line, for `repr` and notebooks."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """The answer's numbers."""

    def to_pandas(self) -> Any:
        """Returns `to_arrow()` as a pandas data frame. Raises a `UserError` if pandas is not installed."""
        return as_format(self.to_arrow(), "pandas")

    def to_polars(self) -> Any:
        """Returns `to_arrow()` as a polars data frame. Raises a `UserError` if polars is not installed."""
        return as_format(self.to_arrow(), "polars")

    def _shown(self) -> pa.Table:
        """What a notebook shows: by default all of `to_arrow`."""
        return self.to_arrow()

    def __repr__(self) -> str:
        return plain(clipped(f"{type(self).__name__}({self._in_words()})", MOST_CHARACTERS))

    def _repr_html_(self) -> str:
        words = html_text(self._in_words(), MOST_CHARACTERS)
        return f"<p><b>{type(self).__name__}</b> {words}</p>{html_table(self._shown())}"


class DrawnAnswer(Answer):
    """An answer that a notebook shows as a table with a figure below."""

    __slots__ = ()

    @abstractmethod
    def plot(self) -> "Figure":
        """Draws the answer's numbers."""

    def _repr_html_(self) -> str:
        # The image is embedded in the HTML, so that a saved notebook contains it.
        png = io.BytesIO()
        self.plot().savefig(png, format="png", dpi=_PIXELS_PER_INCH)
        image = base64.b64encode(png.getvalue()).decode()
        return f'{Answer._repr_html_(self)}<img alt="" src="data:image/png;base64,{image}">'


def json_line(value: object) -> str:
    """One line of JSON; numbers that are not finite become null."""
    return json.dumps(_json_value(value), allow_nan=False)


def table(columns: Mapping[str, Any], rows: Iterable[Sequence[object]]) -> pa.Table:
    """Makes an Arrow table of the given types, even if there are no rows or a column has only nulls.

    `columns` has `str`, `int`, `float` or Arrow types; rows are in their order.
    """
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [pa.array(column, _TYPES.get(kind, kind)) for column, kind in zip(values, columns.values(), strict=True)]
    return pa.table(dict(zip(columns, arrays, strict=True)))


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = (f"| {' | '.join(map(str, row))} |" for row in rows)
    return "\n".join([f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *lines])


def as_format(table: pa.Table, format: TableFormat) -> Any:
    """Raises a `UserError` for another format, or if pandas or polars is needed but not installed."""
    if format not in _FORMATS:
        advice = did_you_mean(format, _FORMATS, otherwise="leave format out to get an Arrow table")
        raise UserError("format", given=format, expected="one of the formats arrow, pandas and polars", fix=advice)
    try:
        if format == "pandas":
            # PyArrow needs pandas here. It is imported first, because `as_format` has an error of its own for a missing
            # pandas, which says how to install it. PyArrow's error does not.
            import pandas  # noqa: F401

            return table.to_pandas()
        if format == "polars":
            import polars

            return polars.from_arrow(table)
    except ModuleNotFoundError as error:
        fix = f"install it with: pip install {format}; or ask for an Arrow table"
        raise UserError("format", given=format, expected=f"the installed library {format}", fix=fix) from error
    return table


def html_table(table: pa.Table) -> str:
    """The first 20 rows, and the number of the others.

    Texts are escaped, and long ones cut, because names of parameters and labels are untrusted.
    """
    heading = "".join(f"<th{_LEFT}>{html_text(name)}</th>" for name in table.column_names)
    rows = [list(row.values()) for row in table.slice(0, _MOST_ROWS).to_pylist()]
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    left_out = table.num_rows - len(rows)
    more = f"<p>{left_out:,} more rows: to_arrow(), to_pandas(), to_polars()</p>" if left_out else ""
    return f"<table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>{more}"


def html_text(text: object, most: int = _MOST_IN_A_CELL) -> str:
    """Escapes an untrusted text, without control characters or direction marks, cut if long."""
    return html.escape(plain(clipped(text, most)))


def _cell(value: object) -> str:
    match value:
        case None:
            return "<td></td>"
        case float():
            return f"<td{_RIGHT}>{value:.4g}</td>"
        case int() if not isinstance(value, bool):
            return f"<td{_RIGHT}>{value:,}</td>"
    return f"<td{_LEFT}>{html_text(value)}</td>"


def _field_names(record: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(record)]


def _json_value(value: Any) -> Any:
    match value:
        case Record():
            return value.as_json()
        case Mapping():
            return {key: _json_value(item) for key, item in value.items()}
        case tuple() | list():
            return [_json_value(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    if dataclasses.is_dataclass(value):
        return {name: _json_value(getattr(value, name)) for name in _field_names(value)}
    return value
