"""Tables as users take them: as Arrow, as a data frame of pandas or polars, and as HTML in a notebook."""

import html
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from attnsweep.orchestrator.analysis.labels import clipped
from attnsweep.orchestrator.terminal import plain
from attnsweep.workloads.errors import UserError, did_you_mean

TableFormat: TypeAlias = Literal["arrow", "pandas", "polars"]

_FORMATS = ("arrow", "pandas", "polars")
_MOST_ROWS = 20
_MOST_CHARACTERS = 120
_LEFT, _RIGHT = ' style="text-align: left"', ' style="text-align: right"'


def as_format(table: pa.Table, format: TableFormat) -> Any:
    """The table itself, or as a data frame.

    Raises:
        UserError: For another format, or if the format's library is not installed.
    """
    if format not in _FORMATS:
        advice = did_you_mean(format, _FORMATS, otherwise="leave it out for arrow")
        raise UserError("format", given=format, expected="arrow, pandas or polars", fix=advice)
    try:
        if format == "pandas":
            # By itself: PyArrow would report a missing pandas in its own words.
            import pandas  # noqa: F401

            return table.to_pandas()
        if format == "polars":
            import polars

            return polars.from_arrow(table)
    except ModuleNotFoundError as error:
        raise UserError(
            "format",
            given=format,
            expected=f"{format} to be installed",
            fix=f"pip install {format}, or take an Arrow table",
        ) from error
    return table


def html_table(table: pa.Table) -> str:
    """The first 20 rows as an HTML table. All texts are escaped, because names of parameters and labels are untrusted.

    Long texts are cut, and a line below says how many rows are left out.
    """
    heading = "".join(f"<th{_LEFT}>{html_text(name)}</th>" for name in table.column_names)
    rows = [list(row.values()) for row in table.slice(0, _MOST_ROWS).to_pylist()]
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    left_out = table.num_rows - len(rows)
    more = f"<p>{left_out:,} more rows: to_arrow(), to_pandas(), to_polars()</p>" if left_out else ""
    return f"<table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>{more}"


def html_text(text: object, most: int = _MOST_CHARACTERS) -> str:
    """An untrusted text for HTML: escaped, without control characters or marks of writing direction, cut if long."""
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
