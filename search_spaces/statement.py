"""Parses the statements of a claim about groups of trainings, such as `rate(solved, small) < rate(solved, large)`."""

import re
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from attnsweep.workloads.errors import SpecError

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_NAME = r"[A-Za-z_]\w*"
_QUANTITY = re.compile(
    rf"(?:(?P<factor>{_NUMBER})\s*\*\s*)?(?P<kind>rate|median)\s*\(\s*"
    rf"(?:(?P<what>event|role|value)\s+)?(?P<name>{_NAME})(?:\s+in\s+(?P<layer>\w+))?"
    rf"(?:\s+before\s+(?P<before>{_NAME})|\s+by\s+(?P<by>\d+)|\s+(?P<side>above|below)\s+(?P<than>[-+]?{_NUMBER}))?"
    r"\s*,\s*(?P<group>[\w.+-]+)\s*\)"
)
What: TypeAlias = Literal["outcome", "event", "role", "value"]
"""What a rate or median in a statement is about: how trainings ended, when an event first happened, when a head took a
role, or the value of a metric at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One quantity that a claim states something about: a rate or a median over the trainings of a group.

    Attributes:
        kind: `rate`, the share of the trainings in which something is true; or `median`, the median step at which it
            first became true, or the median of a metric.
        what: Whether `name` is an outcome, an event, a role or a metric.
        name: An outcome, `stuck`, or the name of an event, a role or a metric.
        group: The name of the group of trainings.
        by: For a rate, the step by which the named thing must have happened; `None` for the end of the training.
        before: Another event, before which the event `name` must have happened; `None` for no such condition.
        layer: The name or number of the layer whose heads may have the role; `None` for any layer.
        side, than: For a rate of a metric, whether the metric must be above or below the number `than`.
    """

    kind: Literal["rate", "median"]
    what: What
    name: str
    group: str
    by: int | None = None
    before: str | None = None
    layer: str | None = None
    side: Literal["above", "below"] | None = None
    than: float = 0.0

    @property
    def is_fitting(self) -> bool:
        """Whether its fields fit together: only the rate of an event may have `before`."""
        is_rate = self.kind == "rate"
        return (
            (self.by is None or (is_rate and self.what != "value"))
            and (self.before is None or (is_rate and self.what == "event"))
            and (self.layer is None or self.what == "role")
            and (self.side is not None) == (is_rate and self.what == "value")
        )


@dataclass(frozen=True, slots=True)
class Statement:
    """An inequality that a claim states: between two rates, between two medians, or between one of these and a number.

    It reads `lower_factor * lower < upper_factor * upper`.

    Attributes:
        text: The statement as the user wrote it.
        lower, upper: The two sides; `None` for a side that is a plain number. The number is then the side's factor.
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
        """What the statement compares: rates or medians."""
        return self.quantities[0].kind

    @property
    def is_of_values(self) -> bool:
        """Whether it is about medians of a metric's final value, not about rates or medians of steps."""
        return self.kind == "median" and self.quantities[0].what == "value"

    @property
    def bound(self) -> float | None:
        """The number with which the statement compares a rate or median; `None` if it compares two rates or medians."""
        if self.lower is None:
            return self.lower_factor / self.upper_factor
        return self.upper_factor / self.lower_factor if self.upper is None else None


def read_statement(text: str) -> Statement:
    """Raises a `SpecError` for a text that is none, or that can be decided without a training."""
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
    """Parses one side of a statement, such as `2 * rate(solved, small)`, into its factor and its rate or median."""
    if re.fullmatch(_NUMBER, side.strip()):
        return float(side), None
    match = _QUANTITY.fullmatch(side.strip())
    if match is None:
        raise _refused(text)
    parts: dict[str, Any] = match.groupdict()
    factor, by, than = float(parts.pop("factor") or 1), parts.pop("by"), parts.pop("than")
    quantity = Quantity(
        **parts | {"what": parts["what"] or "outcome"}, by=None if by is None else int(by), than=float(than or 0)
    )
    return factor, quantity


def _check(statement: Statement) -> None:
    text, quantities = statement.text, statement.quantities
    scales = {(quantity.kind, quantity.kind == "median" and quantity.what == "value") for quantity in quantities}
    if len(scales) != 1 or not (statement.lower_factor and statement.upper_factor):
        raise _refused(text)
    if len({quantity.group for quantity in quantities}) < len(quantities):
        expected = "two different groups: a group cannot be compared with itself"
        fix = "to compare two events in one group, write: rate(event A before B, GROUP) > a number"
        raise SpecError("states", given=text, expected=expected, fix=fix)
    if not all(quantity.is_fitting for quantity in quantities):
        raise _refused(text)
    if statement.kind == "rate" and statement.bound is not None and not 0 < statement.bound < 1:
        raise SpecError(
            "states", given=text, expected="a rate compared with a number between 0 and 1", fix="correct the number"
        )


def _refused(text: str) -> SpecError:
    return SpecError(
        "states",
        given=text,
        expected="A < B or A > B, where A and B are numbers, [NUMBER *] rate(WHAT, GROUP) or [NUMBER *] median(WHAT,"
        " GROUP), but not a rate and a median; WHAT is an outcome, `stuck`, `event NAME` or `role NAME [in LAYER]`, in"
        " a rate also `... by STEP` or `event NAME before OTHER`; for a metric `value NAME above NUMBER` or `value NAME"
        " below NUMBER` in a rate, `value NAME` in a median",
        fix="write for example: rate(stuck, small) > 2 * rate(stuck, large)",
    )
