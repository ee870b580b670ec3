"""Parses what a claim states about groups of trainings: `rate(solved, small) < rate(solved, large)`."""

import re
from dataclasses import dataclass
from typing import Literal

from attnsweep.workloads.errors import SpecError

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_NAME = r"[A-Za-z_]\w*"
_QUANTITY = re.compile(
    rf"(?:(?P<factor>{_NUMBER})\s*\*\s*)?(?P<kind>rate|median)\s*\(\s*(?:(?P<event>event)\s+)?(?P<name>{_NAME})"
    rf"(?:\s+before\s+(?P<before>{_NAME})|\s+by\s+(?P<by>\d+))?\s*,\s*(?P<group>[\w.+-]+)\s*\)"
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A rate or a median over the trainings of a group.

    Attributes:
        kind: `rate`, the share of the trainings in which something is true; or `median`, the median step at which it
            first became true.
        name: An outcome, `stuck`, or the name of an event.
        is_event: Whether `name` is an event.
        by: The step by which it must have become true; `None` for the end of the training.
        before: The event that must not have happened earlier or at the same probe; `None` for no such event.
        group: The name of the group of trainings.
    """

    kind: Literal["rate", "median"]
    name: str
    is_event: bool
    by: int | None
    before: str | None
    group: str


@dataclass(frozen=True, slots=True)
class Statement:
    """An inequality `lower_factor * lower < upper_factor * upper` between rates, or between medians.

    Attributes:
        text: The statement as the user wrote it.
        lower, upper: The two sides; `None` for a side that is a plain number, which is then its factor.
        lower_factor, upper_factor: Positive factors of the sides.
    """

    text: str
    lower: Quantity | None
    upper: Quantity | None
    lower_factor: float
    upper_factor: float

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The one or two rates or medians that the statement compares."""
        return tuple(side for side in (self.lower, self.upper) if side is not None)

    @property
    def kind(self) -> Literal["rate", "median"]:
        """The kind of the compared quantities, the same on both sides."""
        return self.quantities[0].kind

    @property
    def bound(self) -> float | None:
        """The number that a single rate or median is compared with; `None` if two of them are compared."""
        if self.lower is None:
            return self.lower_factor / self.upper_factor
        return self.upper_factor / self.lower_factor if self.upper is None else None


def read_statement(text: str) -> Statement:
    """Parses a statement such as `rate(solved, small) < rate(solved, large)`.

    Raises:
        SpecError: If the text is no statement, or if it can be decided without a training.
    """
    sides = re.split("[<>]", text)
    if len(sides) != 2:
        raise _refused(text)
    (lower_factor, lower), (upper_factor, upper) = (_side(text, side) for side in sides)
    if ">" in text:
        lower_factor, lower, upper_factor, upper = upper_factor, upper, lower_factor, lower
    statement = Statement(text, lower, upper, lower_factor, upper_factor)
    _check(statement)
    return statement


def _side(text: str, side: str) -> tuple[float, Quantity | None]:
    """Parses one side into its factor and its quantity; a plain number is a factor without a quantity."""
    if re.fullmatch(_NUMBER, side.strip()):
        return float(side), None
    match = _QUANTITY.fullmatch(side.strip())
    if match is None:
        raise _refused(text)
    parts = match.groupdict()
    quantity = Quantity(
        kind="rate" if parts["kind"] == "rate" else "median",
        name=parts["name"],
        is_event=parts["event"] is not None,
        by=None if parts["by"] is None else int(parts["by"]),
        before=parts["before"],
        group=parts["group"],
    )
    return float(parts["factor"] or 1), quantity


def _check(statement: Statement) -> None:
    text, quantities = statement.text, statement.quantities
    if (
        not quantities
        or len({quantity.kind for quantity in quantities}) > 1
        or not (statement.lower_factor and statement.upper_factor)
    ):
        raise _refused(text)
    if len({quantity.group for quantity in quantities}) < len(quantities):
        raise SpecError(
            "states",
            given=text,
            expected="two different groups: a group cannot be compared with itself",
            fix="to compare two events in one group, write: rate(event A before B, GROUP) > a number",
        )
    for quantity in quantities:
        if (quantity.before is not None and not quantity.is_event) or (
            quantity.kind == "median" and (quantity.by or quantity.before)
        ):
            raise _refused(text)
    if statement.kind == "rate" and statement.bound is not None and not 0 < statement.bound < 1:
        raise SpecError("states", given=text, expected="a bound of the rate between 0 and 1", fix="correct the number")


def _refused(text: str) -> SpecError:
    return SpecError(
        "states",
        given=text,
        expected="A < B or A > B, where A and B are numbers, [NUMBER *] rate(WHAT, GROUP) or [NUMBER *] median(WHAT,"
        " GROUP), but not a rate and a median; WHAT is an outcome, `stuck` or `event NAME`, in a rate also"
        " `... by STEP` or `event NAME before OTHER`",
        fix="write for example: rate(stuck, small) > 2 * rate(stuck, large)",
    )
