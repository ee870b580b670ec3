"""Labels trainings by a table: the first row whose condition holds gives the outcome. Conditions, outcomes and details
are (L, P): L training, P probe."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.conditions import holds
from attnsweep.workloads.engine.outcomes import (
    Evidence,
    Label,
    has_diverged,
    is_moving,
    standing,
)
from attnsweep.workloads.errors import SpecError

Condition: TypeAlias = Callable[[Any, Evidence], NDArray[np.bool_]]
"""From the first training's parameters, of which static ones may be read, and the evidence: where it holds."""
When: TypeAlias = Condition | str
"""A function, or a text such as `accuracy >= 0.99`."""


def where_held(when: When, parameters: object, evidence: Evidence, subject: str = "a condition") -> NDArray[np.bool_]:
    if isinstance(when, str):
        return holds(when, evidence.metrics, subject)
    held, expected = np.asarray(when(parameters, evidence)), evidence.metrics["eval_loss"].shape
    if held.dtype != np.bool_ or held.shape != expected:
        raise ValueError(
            f"{subject}: got a {held.dtype} array of the shape {held.shape}, expected a bool array of the shape"
            f" {expected}: one value for each training and each probe (step with a measurement)"
        )
    return held


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdicts:
    """Outcome and detail that each training would get if it ended at the probe."""

    outcome: NDArray[np.str_]
    detail: NDArray[np.str_]


def below_solved(_: object, evidence: Evidence) -> NDArray[np.bool_]:
    return evidence.metrics["eval_loss"] < evidence.levels["solved"][:, None]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A row of a `VerdictTable`: the outcome that trainings get where a condition holds.

    Attributes:
        details: Those that the row may give.
        which: Which of several each training gets at each probe.
    """

    outcome: str
    when: When
    details: tuple[str, ...] = ("",)
    which: Callable[[Evidence], NDArray[np.str_]] | None = None

    @classmethod
    def diverged(cls, level: str = "zero") -> Self:
        """`diverged` where the loss is not finite, or far above a level, by default that of the output 0."""
        return cls(
            outcome="diverged",
            when=lambda _, evidence: has_diverged(evidence.metrics["eval_loss"], evidence.levels[level]),
        )

    @classmethod
    def solved(cls) -> Self:
        return cls(outcome="solved", when=below_solved)

    @classmethod
    def moving(cls) -> Self:
        """`plateau` with the detail `moving` where the loss still falls."""
        return cls(
            outcome="plateau",
            details=("moving",),
            when=lambda _, evidence: is_moving(evidence.steps, evidence.metrics["eval_loss"]),
        )

    def cases(self, parameters: Any, evidence: Evidence) -> dict[Label, NDArray[np.bool_]]:
        """Where each outcome with its detail holds."""
        held = where_held(self.when, parameters, evidence, f"the condition of the outcome {self.outcome}")
        if self.which is None:
            return {(self.outcome, self.details[0]): held}
        detail = self.which(evidence)
        return {(self.outcome, name): held & (detail == name) for name in self.details}


@dataclass(frozen=True, kw_only=True)
class AtLevel:
    """A row of a `VerdictTable`: an outcome where the loss is at a reference level, which is the detail, with those
    that the loss does not tell from it: see `standing`. Trainings without this level do not get the label."""

    outcome: str
    level: str
    when: When | None = None

    @property
    def details(self) -> tuple[str, ...]:
        return (self.level,)


@dataclass(frozen=True)
class VerdictTable:
    """The first row that holds labels a training; `plateau` where none does. All rows `AtLevel` are tried together, in
    the place of the first of them."""

    rows: tuple[Rule | AtLevel, ...]

    def __post_init__(self) -> None:
        labels = [(row.outcome, detail) for row in self.rows for detail in row.details]
        if twice := [label for label in labels if labels.count(label) > 1]:
            given, subject = f"the label {twice[0]} in two rows", "the table of verdicts (rules that label trainings)"
            fix = "join the two rows into one, or give one of the rows another detail"
            raise SpecError(subject, given=given, expected="each label in one row only", fix=fix)

    def judge(self, parameters: Any, evidence: Evidence) -> Verdicts:
        levels = [row for row in self.rows if isinstance(row, AtLevel)]
        cases: dict[Label, NDArray[np.bool_]] = {}
        for row in self.rows:
            if isinstance(row, Rule):
                cases |= row.cases(parameters, evidence)
            elif row is levels[0]:
                stuck = {row.level: row.outcome for row in levels}
                where = {
                    row.level: where_held(row.when, parameters, evidence) for row in levels if row.when is not None
                }
                cases |= standing(evidence.metrics["eval_loss"], evidence.levels, stuck, where)
        labels, held = [*cases, ("plateau", "")], list(cases.values())
        outcome, detail = (np.select(held, names[:-1], names[-1]) for names in zip(*labels, strict=True))
        return Verdicts(outcome=outcome, detail=detail)


Verdicting: TypeAlias = VerdictTable | Mapping[str, VerdictTable]
"""One table, or one for each value of the parameter `variant_field`."""
