"""Declares the parameters of trainings, as metadata of a dataclass's fields."""

import dataclasses
import math
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from attnsweep.workloads.errors import SpecError, did_you_mean

Value: TypeAlias = bool | int | float | str | None

KINDS = (float, int, bool, str)

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
"""Of whole numbers: a column of the ledger has 64 bits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """The declaration of one parameter of a training.

    Attributes:
        kind: One of `KINDS`.
        low, high: Inclusive bounds of numbers; `None` for no bound.
        above: Exclusive lower bound.
        static: Whether it changes a tensor's shape or the graph of the loss.
        doc: One line for the user, with the unit.
        check: Raises a `SpecError` for a text that is not accepted; `None` accepts any text.
    """

    name: str
    kind: type
    optional: bool
    default: Value
    low: float | None
    high: float | None
    above: float | None
    choices: tuple[str, ...] | None
    static: bool
    doc: str
    check: Callable[[str], object] | None = None

    def expected(self) -> str:
        """For error messages, such as `a finite number > 0, or null`."""
        if self.choices is not None:
            words = "one of " + ", ".join(self.choices)
        elif self.kind is bool:
            words = "true or false"
        else:
            noun = {float: "a finite number", int: "a whole number", str: "a name"}[self.kind]
            high = _LARGEST if self.high is None and self.kind is int else self.high
            bounds = [
                f"> {self.above:g}" if self.above is not None else "",
                f">= {self.low:g}" if self.low is not None else "",
                f"<= {high:g}" if high is not None else "",
            ]
            words = " ".join([noun, " and ".join(bound for bound in bounds if bound)]).strip()
        return f"{words}, or null" if self.optional else words

    def accept(self, value: object) -> Value:
        """The value in the declared type; refused if of another type or out of range."""
        number = value = plain(value)
        if value is None and self.optional:
            return None
        if self.kind is float and type(value) is int and abs(value) <= sys.float_info.max:
            number = float(value)
        if self.kind is int and type(value) is float and value.is_integer():
            number = int(value)
        if type(number) is not self.kind or not self._inside(number):
            fix = did_you_mean(value, self.choices or (), otherwise=f"meaning: {self.doc}")
            raise SpecError(self.name, given=value, expected=self.expected(), fix=fix)
        if self.check is not None:
            try:
                self.check(str(number))
            except SpecError as error:
                raise SpecError(self.name, given=value, expected=error.expected, fix=error.fix) from None
        return typing.cast(Value, number)

    def _inside(self, value: object) -> bool:
        if self.choices is not None:
            return value in self.choices
        if not isinstance(value, int | float) or isinstance(value, bool):
            return True
        return (
            (_SMALLEST <= value <= _LARGEST if isinstance(value, int) else math.isfinite(value))
            and (self.above is None or value > self.above)
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
        )


def plain(value: object) -> object:
    """Python's numbers and lists for NumPy's scalars and arrays, also inside lists and mappings."""
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value)) if type(value) in (list, tuple) else value
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return value.tolist() if type(value).__module__ == "numpy" and hasattr(value, "tolist") else value


def check_spelling(subject: str, names: Iterable[str]) -> None:
    """Refuses names that differ only in case: SQL would read one column for both."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.lower(), name)) != name:
            expected = "names that differ not only in case, which SQL ignores"
            fix = "rename one of the two"
            raise SpecError(f"{subject}.{name}", given=f"{name} beside {other}", expected=expected, fix=fix)


def parameter(
    default: Value,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] | None = None,
    check: Callable[[str], object] | None = None,
    static: bool = False,
) -> Any:
    """A field of a `TrainingParameters` class. The arguments are `Parameter`'s."""
    bounds = {"low": low, "high": high, "above": above, "choices": choices, "check": check}
    declared = {**bounds, "default": default, "static": static, "doc": doc}
    return dataclasses.field(default=default, metadata={"parameter": declared})
