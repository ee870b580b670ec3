"""What a claim states of its groups, as text: `rate(solved, small) < rate(solved, large)`."""

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
        kind: `rate`, the share of the trainings of which something is true; or `median`, of the steps at which it
            first was.
        name: An outcome, `stuck`, or an event.
        is_event: Whether it is an event.
        by: The step by which it must have been true; `None` for by the end.
        before: The event that must not have been earlier, or at the same probe; `None` for none.
        group: Whose trainings.
    """

    kind: Literal["rate", "median"]
    name: str
    is_event: bool
    by: int | None
    before: str | None
    group: str


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
    found = match.groupdict()
    quantity = Quantity(
        kind="rate" if found["kind"] == "rate" else "median",
        name=found["name"],
        is_event=found["event"] is not None,
        by=None if found["by"] is None else int(found["by"]),
        before=found["before"],
        group=found["group"],
    )
    return float(found["factor"] or 1), quantity


def _check(statement: Statement) -> None:
    text, of = statement.text, statement.quantities
    if not of or len({each.kind for each in of}) > 1 or not (statement.lower_factor and statement.upper_factor):
        raise _refused(text)
    if len({each.group for each in of}) < len(of):
        raise SpecError(
            "states",
            given=text,
            expected="two groups: the trainings of one are not independent of themselves",
            fix="of two events in one group, state: rate(event A before B, GROUP) > a number",
        )
    for each in of:
        if (each.before is not None and not each.is_event) or (each.kind == "median" and (each.by or each.before)):
            raise _refused(text)
    if statement.kind == "rate" and statement.bound is not None and not 0 < statement.bound < 1:
        raise SpecError("states", given=text, expected="a rate between 0 and 1", fix="correct the number")


def _refused(text: str) -> SpecError:
    return SpecError(
        "states",
        given=text,
        expected="A < B or A > B, each a number, [NUMBER *] rate(WHAT, GROUP) or [NUMBER *] median(WHAT, GROUP), not"
        " both kinds; WHAT is an outcome, `stuck` or `event NAME`; in a rate also `... by STEP` or"
        " `event NAME before OTHER`",
        fix="write for example: rate(stuck, small) > 2 * rate(stuck, large)",
    )
