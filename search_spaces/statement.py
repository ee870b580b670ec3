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


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A rate or a median of a group of trainings.

    Attributes:
        kind: The share of trainings in which something is true; the median step at which it first was, or the median of
            a metric.
        name: An outcome, `stuck`, an event, a role or a metric.
        by: For a rate, the step by which it must have happened; `None` for the end.
        before: Another event, before which the event must have happened.
        layer: The layer whose heads may have the role; `None` for any.
        side, than: For a rate of a metric: above or below this number.
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
        """Whether its fields go together: only the rate of an event may have `before`, and so on."""
        is_rate = self.kind == "rate"
        return (
            (self.by is None or (is_rate and self.what != "value"))
            and (self.before is None or (is_rate and self.what == "event"))
            and (self.layer is None or self.what == "role")
            and (self.side is not None) == (is_rate and self.what == "value")
        )


@dataclass(frozen=True, slots=True)
class Statement:
    """`lower_factor * lower < upper_factor * upper`; a side that is a plain number is `None`, the number its factor."""

    text: str
    lower: Quantity | None
    upper: Quantity | None
    lower_factor: float
    upper_factor: float

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        return tuple(side for side in (self.lower, self.upper) if side is not None)

    @property
    def kind(self) -> Literal["rate", "median"]:
        return self.quantities[0].kind

    @property
    def is_of_values(self) -> bool:
        """Whether it is about medians of a metric, not of steps."""
        return self.kind == "median" and self.quantities[0].what == "value"

    @property
    def bound(self) -> float | None:
        """The number that a quantity is compared with; `None` if two are compared."""
        if self.lower is None:
            return self.lower_factor / self.upper_factor
        return self.upper_factor / self.lower_factor if self.upper is None else None


def read_statement(text: str) -> Statement:
    """Raises a `SpecError` for a text that is none, or that needs no training to be decided."""
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
    is_comparable = len(scales) == 1 and statement.lower_factor and statement.upper_factor
    if not is_comparable or not all(quantity.is_fitting for quantity in quantities):
        raise _refused(text)
    if len({quantity.group for quantity in quantities}) < len(quantities):
        fix = "to compare two events in one group, write: rate(event A before B, GROUP) > a number"
        raise SpecError("states", given=text, expected="two different groups", fix=fix)
    if statement.kind == "rate" and statement.bound is not None and not 0 < statement.bound < 1:
        raise SpecError("states", given=text, expected="a rate compared with a number between 0 and 1")


def _refused(text: str) -> SpecError:
    expected = (
        "A < B or A > B of numbers, [NUMBER *] rate(WHAT, GROUP) or [NUMBER *] median(WHAT, GROUP): docs/claims.md"
    )
    fix = "write for example: rate(stuck, small) > 2 * rate(stuck, large)"
    return SpecError("states", given=text, expected=expected, fix=fix)
