"""What a claim states of its groups, as text: `rate(solved, small) < rate(solved, large)`."""

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
"""How a training ended, when something was first true of it, when a head took a role, what it measured at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A rate or a median over the trainings of a group.

    Attributes:
        kind: `rate`, the share of the trainings of which something is true; or `median`, of the steps at which it
            first was, or of values.
        what: What it is about.
        name: An outcome, `stuck`, an event, a role, or a metric.
        group: Whose trainings.
        by: Rate: the step by which it must have been true; `None` for by the end.
        before: Rate of an event: the event that must not have been earlier, or at the same probe; `None` for none.
        layer: Name or number of the layer whose heads may have the role; `None` for any.
        side, than: Rate of a value: whether it must be above or below this number.
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
        """Whether its parts fit together."""
        is_rate = self.kind == "rate"
        return (
            (self.by is None or (is_rate and self.what != "value"))
            and (self.before is None or (is_rate and self.what == "event"))
            and (self.layer is None or self.what == "role")
            and (self.side is not None) == (is_rate and self.what == "value")
        )


@dataclass(frozen=True, slots=True)
class Statement:
    """`lower_factor lower < upper_factor upper`: of rates, or of medians.

    Attributes:
        text: As it was given.
        lower, upper: The two sides; `None` for a side that is the number 1, so that its factor is the number.
        lower_factor, upper_factor: Above 0.
    """

    text: str
    lower: Quantity | None
    upper: Quantity | None
    lower_factor: float
    upper_factor: float

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The one or two of it."""
        return tuple(each for each in (self.lower, self.upper) if each is not None)

    @property
    def kind(self) -> Literal["rate", "median"]:
        """What it is about."""
        return self.quantities[0].kind

    @property
    def is_of_values(self) -> bool:
        """Whether it is about medians of values, not of steps."""
        return self.kind == "median" and self.quantities[0].what == "value"

    @property
    def bound(self) -> float | None:
        """The number that a single rate or median is compared with; `None` where there are two."""
        if self.lower is None:
            return self.lower_factor / self.upper_factor
        return self.upper_factor / self.lower_factor if self.upper is None else None


def read_statement(text: str) -> Statement:
    """The statement of a text.

    Raises:
        SpecError: If it is none, or if it can be decided without a training.
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
    """Its factor, or the number that it is."""
    if re.fullmatch(_NUMBER, side.strip()):
        return float(side), None
    match = _QUANTITY.fullmatch(side.strip())
    if match is None:
        raise _refused(text)
    found: dict[str, Any] = match.groupdict()
    factor, by, than = float(found.pop("factor") or 1), found.pop("by"), found.pop("than")
    quantity = Quantity(
        **found | {"what": found["what"] or "outcome"},
        by=None if by is None else int(by),
        than=float(than or 0),
    )
    return factor, quantity


def _check(statement: Statement) -> None:
    text, of = statement.text, statement.quantities
    scales = {(each.kind, each.kind == "median" and each.what == "value") for each in of}
    if len(scales) != 1 or not (statement.lower_factor and statement.upper_factor):
        raise _refused(text)
    if len({each.group for each in of}) < len(of):
        raise SpecError(
            "states",
            given=text,
            expected="two groups: the trainings of one are not independent of themselves",
            fix="of two events in one group, state: rate(event A before B, GROUP) > a number",
        )
    if not all(each.is_fitting for each in of):
        raise _refused(text)
    if statement.kind == "rate" and statement.bound is not None and not 0 < statement.bound < 1:
        raise SpecError("states", given=text, expected="a rate between 0 and 1", fix="correct the number")


def _refused(text: str) -> SpecError:
    return SpecError(
        "states",
        given=text,
        expected="A < B or A > B, each a number, [NUMBER *] rate(WHAT, GROUP) or [NUMBER *] median(WHAT, GROUP), not"
        " both kinds; WHAT is an outcome, `stuck`, `event NAME`, `role NAME [in LAYER]`, in a rate also with `by STEP`,"
        " or `event NAME before OTHER`; of a metric `value NAME above NUMBER` or `below NUMBER` in a rate, `value NAME`"
        " in a median",
        fix="write for example: rate(stuck, small) > 2 * rate(stuck, large)",
    )
