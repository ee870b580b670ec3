"""Constraints on a trial, as text: `stuck_rate <= 0.1`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from attnsweep.search_spaces.measured import Direction, LossQuantile, Measured, OnsetQuantile, Rate, StuckRate
from attnsweep.workloads.conditions import COMPARISONS, terms_of
from attnsweep.workloads.errors import SpecError

_RATE = re.compile(r"([A-Za-z_]\w*)_rate")
_ONSET = re.compile(r"([A-Za-z_]\w*)_onset")
_EXAMPLE = 'constraints=("stuck_rate <= 0.1", "loss_quantile <= 0.5")'


@dataclass(frozen=True, slots=True)
class Constraint:
    """A bound on a quantity that is measured for each trial, such as `stuck_rate <= 0.1`.

    Attributes:
        text: The constraint as the user wrote it.
        measured: The quantity that is bounded. Its direction points away from the bound, so that a diverged training
            counts as the worst value.
        bound: The number that the quantity is compared with.
    """

    text: str
    measured: Measured
    bound: float

    def excess(self, value: float) -> float:
        """Returns how far `value` lies beyond the bound; 0 or less if the constraint holds, as Optuna expects."""
        return value - self.bound if self.measured.direction == "minimize" else self.bound - value


def read_constraints(texts: Sequence[str]) -> tuple[Constraint, ...]:
    """Parses texts such as `stuck_rate <= 0.1` into constraints.

    Raises:
        SpecError: For a text that is no constraint, or one that is given twice.
    """
    constraints = tuple(map(_constraint, texts))
    for index, text in enumerate(texts):
        if text in texts[:index]:
            raise SpecError(
                "constraints", given=text, expected="each constraint once", fix="remove the repeated constraint"
            )
    return constraints


def _constraint(text: str) -> Constraint:
    try:
        terms = terms_of(text)
    except SpecError:
        terms = []
    if len(terms) != 1 or terms[0][1] not in (COMPARISONS["<="], COMPARISONS[">="]):
        raise _refused(text)
    [(name, compare, bound)] = terms
    return Constraint(text, _measured(text, name, is_upper=compare is COMPARISONS["<="]), bound)


def _measured(text: str, name: str, *, is_upper: bool) -> Measured:
    direction: Direction = "minimize" if is_upper else "maximize"
    rate, onset = _RATE.fullmatch(name), _ONSET.fullmatch(name)
    if name == "loss_quantile":
        return LossQuantile(direction=direction)
    if onset is not None and is_upper:
        return OnsetQuantile(onset[1])
    if rate is None:
        raise _refused(text)
    return StuckRate(direction=direction) if name == "stuck_rate" else Rate(rate[1], direction=direction)


def _refused(text: str) -> SpecError:
    return SpecError(
        "constraints",
        given=text,
        expected="texts such as stuck_rate <= 0.1: NAME_rate of an outcome or loss_quantile (the median), <= or >=, a"
        " number; or NAME_onset (the median) <= a number",
        fix=f"write for example {_EXAMPLE}",
    )
