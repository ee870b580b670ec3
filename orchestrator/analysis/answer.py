"""What all answers have in common: one table in three formats, one line of text, and their look in a notebook."""

import base64
import html
import io
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from attnsweep.orchestrator.analysis.labels import clipped
from attnsweep.orchestrator.terminal import plain
from attnsweep.workloads.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TableFormat: TypeAlias = Literal["arrow", "pandas", "polars"]

_FORMATS = ("arrow", "pandas", "polars")
_MOST_ROWS = 20
_MOST_IN_A_CELL = 120
MOST_CHARACTERS = 300
"""Of an answer in one line."""
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


def html_text(text: object, most: int = _MOST_IN_A_CELL) -> str:
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


_PIXELS_PER_INCH = 80


class Answer(ABC):
    """An answer to a question about a sweep: numbers as attributes, and one table. A notebook shows the table.

    Implementers: a dataclass with `repr=False`, so that all answers print as one line.
    """

    __slots__ = ()

    @abstractmethod
    def _in_words(self) -> str:
        """The answer in one line."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """The numbers as a table."""

    def to_pandas(self) -> Any:
        """`to_arrow()` as a data frame of pandas.

        Raises:
            UserError: If pandas is not installed.
        """
        return as_format(self.to_arrow(), "pandas")

    def to_polars(self) -> Any:
        """`to_arrow()` as a data frame of polars.

        Raises:
            UserError: If polars is not installed.
        """
        return as_format(self.to_arrow(), "polars")

    def _shown(self) -> pa.Table:
        """The table that a notebook shows; override where `to_arrow` is a grid or a curve."""
        return self.to_arrow()

    def __repr__(self) -> str:
        return plain(clipped(f"{type(self).__name__}({self._in_words()})", MOST_CHARACTERS))

    def _repr_html_(self) -> str:
        words = html_text(self._in_words(), MOST_CHARACTERS)
        return f"<p><b>{type(self).__name__}</b> {words}</p>{html_table(self._shown())}"


class DrawnAnswer(Answer):
    """An answer with a figure, which a notebook shows below the table."""

    __slots__ = ()

    @abstractmethod
    def plot(self) -> "Figure":
        """The numbers as a matplotlib figure."""

    def _repr_html_(self) -> str:
        # Inside the page, so that a notebook keeps the figure.
        png = io.BytesIO()
        self.plot().savefig(png, format="png", dpi=_PIXELS_PER_INCH)
        image = base64.b64encode(png.getvalue()).decode()
        return f'{Answer._repr_html_(self)}<img alt="" src="data:image/png;base64,{image}">'
