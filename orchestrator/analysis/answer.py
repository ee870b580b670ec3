"""What all answers have in common: one table in three formats, one line of text, and their look in a notebook."""

import base64
import io
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from attnsweep.orchestrator.analysis.labels import clipped
from attnsweep.orchestrator.analysis.tables import as_format, html_table, html_text
from attnsweep.orchestrator.terminal import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_CHARACTERS = 300
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
        return plain(clipped(f"{type(self).__name__}({self._in_words()})", _MOST_CHARACTERS))

    def _repr_html_(self) -> str:
        words = html_text(self._in_words(), _MOST_CHARACTERS)
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
