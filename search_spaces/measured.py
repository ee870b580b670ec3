"""Quantities that are computed for each trial from its trainings: the objectives of a sweep, and constraints."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Tag

from attnsweep.search_spaces.dimensions import Positional
from attnsweep.search_spaces.model import SpecModel
from attnsweep.workloads.conditions import COMPARISONS, terms_of
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.vocabulary import STUCK

Direction: TypeAlias = Literal["minimize", "maximize"]


class StuckRate(SpecModel):
    """An objective: the share of a trial's trainings that end stuck."""

    kind: Literal["stuck_rate"] = "stuck_rate"
    direction: Direction = "minimize"

    @property
    def label(self) -> str:
        return self.kind


class Rate(Positional):
    """An objective: the share that end with an outcome; `Rate("stuck")` is that of all stuck outcomes."""

    positional = ("outcome",)

    kind: Literal["rate"] = "rate"
    outcome: str
    direction: Direction = "maximize"

    if TYPE_CHECKING:

        def __init__(self, outcome: str, *, direction: Direction = "maximize") -> None: ...

    @property
    def label(self) -> str:
        return f"rate of {self.outcome}"


class LossQuantile(SpecModel):
    """An objective: a quantile of the final `eval_loss`. A training without a finite loss counts as the worst."""

    kind: Literal["loss_quantile"] = "loss_quantile"
    quantile: float = Field(default=0.5, ge=0.0, le=1.0)
    direction: Direction = "minimize"

    @property
    def label(self) -> str:
        return self.kind if self.quantile == 0.5 else f"{self.kind} {self.quantile:g}"


class OnsetQuantile(Positional):
    """An objective: a quantile of the step from which an outcome holds to the end; 1e12 for trainings with another."""

    positional = ("outcome",)

    kind: Literal["onset_quantile"] = "onset_quantile"
    outcome: str
    quantile: float = Field(default=0.5, ge=0.0, le=1.0)
    direction: Literal["minimize"] = "minimize"

    if TYPE_CHECKING:

        def __init__(self, outcome: str, *, quantile: float = 0.5) -> None: ...

    @property
    def label(self) -> str:
        return f"onset of {self.outcome}" + ("" if self.quantile == 0.5 else f" {self.quantile:g}")


Measured: TypeAlias = StuckRate | Rate | LossQuantile | OnsetQuantile


def goal_of(objective: Measured) -> str:
    """Such as `rate of solved, to maximize`."""
    return f"{objective.label}, to {objective.direction}"


def _read(given: object) -> object:
    if isinstance(given, str):
        return {"kind": given}
    if not isinstance(given, list | tuple):
        return given
    several = tuple(map(_read, given))
    return several[0] if len(several) == 1 else several


# Pydantic puts tags into the location of an error, from which `first_mistake` removes blank ones.
_ONE, _SEVERAL = "", " "
_Objective: TypeAlias = Annotated[Measured, Field(discriminator="kind")]
Objective: TypeAlias = Annotated[
    Annotated[_Objective, Tag(_ONE)] | Annotated[tuple[_Objective, ...], Field(min_length=2), Tag(_SEVERAL)],
    Discriminator(lambda given: _SEVERAL if isinstance(given, tuple) else _ONE),
    BeforeValidator(_read),
]

_RATE = re.compile(r"([A-Za-z_]\w*)_rate")
_ONSET = re.compile(r"([A-Za-z_]\w*)_onset")


@dataclass(frozen=True, slots=True)
class Constraint:
    """A bound on a quantity of each trial, such as `stuck_rate <= 0.1`.

    `measured` has the direction in which it is met, so that a diverged training counts against it.
    """

    text: str
    measured: Measured
    bound: float

    def excess(self, value: float) -> float:
        """By how much `value` violates the bound; at most 0 if it is met, as Optuna expects."""
        return value - self.bound if self.measured.direction == "minimize" else self.bound - value


def read_constraints(texts: Sequence[str], subject: str = "constraints") -> tuple[Constraint, ...]:
    """From texts such as `stuck_rate <= 0.1`. Raises a `SpecError`."""
    constraints = []
    for text in texts:
        if (constraint := _constraint(text)) is None:
            expected = "NAME_rate of an outcome or loss_quantile, <= or >=, a number; or NAME_onset <= a number"
            fix = f'write for example {subject}="stuck_rate <= 0.1"'
            raise SpecError(subject, given=text, expected=expected, fix=fix)
        constraints.append(constraint)
    return tuple(constraints)


def _constraint(text: str) -> Constraint | None:
    try:
        terms = terms_of(text)
    except SpecError:
        return None
    if len(terms) != 1 or terms[0][1] not in (COMPARISONS["<="], COMPARISONS[">="]):
        return None
    [(name, compare, bound)] = terms
    measured = _measured(name, is_upper=compare is COMPARISONS["<="])
    return None if measured is None else Constraint(text, measured, bound)


def _measured(name: str, *, is_upper: bool) -> Measured | None:
    direction: Direction = "minimize" if is_upper else "maximize"
    rate, onset = _RATE.fullmatch(name), _ONSET.fullmatch(name)
    if name == "loss_quantile":
        return LossQuantile(direction=direction)
    if onset is not None and is_upper:
        return OnsetQuantile(onset[1])
    if rate is None:
        return None
    return StuckRate(direction=direction) if name == "stuck_rate" else Rate(rate[1], direction=direction)


N_JUDGED = "n_judged"
"""The attribute of a trial that tells from how many trainings its value is."""
WORST_LOSS = NEVER = 1e12
"""Told in place of larger values and of NaN, from which Optuna would make a failed trial that samplers ignore."""


def objective_value(
    objective: Measured,
    outcome: Sequence[str],
    stuck: Sequence[bool],
    loss: Sequence[float | None],
    onset: Sequence[int | None] = (),
) -> float:
    """From a trial's judged trainings; `loss` is `None` where not finite, `onset` where there is none.

    A diverged training counts against its trial, so that the sampler keeps away; stuck rates that users see count it
    as not stuck.
    """
    if isinstance(objective, StuckRate | Rate):
        named = STUCK if isinstance(objective, StuckRate) else objective.outcome
        counts = {named, "diverged"} if objective.direction == "minimize" else {named}
        n = sum(
            label in counts or (is_stuck and STUCK in counts) for is_stuck, label in zip(stuck, outcome, strict=True)
        )
        return n / len(stuck)
    if isinstance(objective, OnsetQuantile):
        onsets = zip(outcome, onset, strict=True)
        steps = [NEVER if step is None or label != objective.outcome else float(step) for label, step in onsets]
        return _quantile(steps, objective.quantile)
    worst = WORST_LOSS
    if objective.direction == "maximize":
        # The finite loss of a diverged training might be among the best.
        loss = [None if label == "diverged" else value for value, label in zip(loss, outcome, strict=True)]
        worst = -WORST_LOSS
    return _quantile([worst if value is None else min(value, WORST_LOSS) for value in loss], objective.quantile)


def _quantile(values: Sequence[float], quantile: float) -> float:
    # One of the given values, as NumPy's `inverted_cdf`, which takes a hundred times as long for a few numbers.
    return float(sorted(values)[max(math.ceil(len(values) * quantile - 1), 0)])
