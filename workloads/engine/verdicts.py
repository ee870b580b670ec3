"""Labels trainings by a table of conditions: the first row whose condition holds gives the outcome. Axes: L training, P
probe."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.conditions import holds
from attnsweep.workloads.engine.outcomes import (
    AT_LEVEL,
    DIVERGED_FACTOR,
    Evidence,
    Label,
    has_diverged,
    is_moving,
    standing,
)
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.vocabulary import MOVING_SHARE

Condition: TypeAlias = Callable[[Any, Evidence], NDArray[np.bool_]]
"""From the first training's parameters (read only static ones) and the evidence: where it holds, (n_trainings,
n_probes)."""
When: TypeAlias = Condition | str
"""A condition as a function, or as a text such as `accuracy >= 0.99`."""


def where_held(when: When, parameters: object, evidence: Evidence, subject: str = "a condition") -> NDArray[np.bool_]:
    """Returns a mask (n_trainings, n_probes) of the probes at which a condition holds.

    Raises:
        SpecError: If a text is not a condition, or names a metric that is not measured.
        ValueError: If a function does not return such a mask.
    """
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
    """The labels of all trainings at all probes, (L, P): the outcome that each would get if it ended at the probe, and
    what it leaves open, such as the level at which the training is stuck."""

    outcome: NDArray[np.str_]
    detail: NDArray[np.str_]


def below_solved(_: object, evidence: Evidence) -> NDArray[np.bool_]:
    """Returns at which probes each training's loss is below the level `solved`, which means that the task is solved."""
    return evidence.metrics["eval_loss"] < evidence.levels["solved"][:, None]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A row of a `VerdictTable`: a condition, and the outcome that trainings get where it holds.

    Attributes:
        when: The condition: a function, or a text such as `accuracy >= 0.99`.
        says: The condition in words, for the documentation; by default the text of `when`.
        looks: How a training with this outcome behaves, for the documentation.
        details: The details that the row may give; by default none.
        which: If there are several details, a function that returns the detail of each training at each probe,
            (n_trainings, n_probes).
    """

    outcome: str
    when: When
    says: str = ""
    looks: str = ""
    details: tuple[str, ...] = ("",)
    which: Callable[[Evidence], NDArray[np.str_]] | None = None

    def __post_init__(self) -> None:
        if not self.says:
            unnamed = "a condition of the workload's own"
            object.__setattr__(self, "says", self.when if isinstance(self.when, str) else unnamed)

    @classmethod
    def diverged(cls, level: str = "zero", looks: str = "") -> Self:
        """Returns the row, for a table that decides outcomes by conditions, that gives the outcome `diverged`. Its
        condition is that the loss is not finite, or far above a reference level, by default `zero` (the loss of the
        output 0)."""
        return cls(
            outcome="diverged",
            when=lambda _, evidence: has_diverged(evidence.metrics["eval_loss"], evidence.levels[level]),
            says=f"loss not finite, or above {DIVERGED_FACTOR:g} times `level_{level}` and above its own start",
            looks=looks,
        )

    @classmethod
    def solved(cls, says: str = "loss below `loss_level`", looks: str = "") -> Self:
        """Returns the rule that gives the outcome `solved` to trainings whose loss is below the workload's limit for a
        solved task. The documentation shows `says` as the condition of the rule."""
        return cls(outcome="solved", when=below_solved, says=says, looks=looks)

    @classmethod
    def moving(cls) -> Self:
        """Returns a row for the ordered table of rules that labels trainings. It gives the label `plateau` with the
        detail `moving` to trainings whose loss still falls, if no earlier row applies to them."""
        return cls(
            outcome="plateau",
            details=("moving",),
            when=lambda _, evidence: is_moving(evidence.steps, evidence.metrics["eval_loss"]),
            says=f"none of these, and the loss fell by more than {MOVING_SHARE:.0%} over the last fifth of the steps",
            looks="still learning: the run was too short, or is slow",
        )

    def cases(self, parameters: Any, evidence: Evidence) -> dict[Label, NDArray[np.bool_]]:
        """Returns, for each outcome that this row of a `VerdictTable` can give, a mask (n_trainings, n_probes): true at
        the probes where the row's condition for this outcome holds.

        The keys are labels: the outcome and its detail.
        """
        held = where_held(self.when, parameters, evidence, f"the condition of the outcome {self.outcome}")
        if self.which is None:
            return {(self.outcome, self.details[0]): held}
        detail = self.which(evidence)
        return {(self.outcome, name): held & (detail == name) for name in self.details}


@dataclass(frozen=True, kw_only=True)
class AtLevel:
    """A row of a `VerdictTable` that gives an outcome where the loss is at a reference level.

    The detail is the name of the level. If the loss does not tell the level from other levels of the table, the detail
    names them too: see `standing`.

    Attributes:
        level: The level's name. Trainings that have no such level do not get this label.
        says: The predictor that has this loss, in words, for the documentation.
        looks: How a training with this outcome behaves, for the documentation.
        also: The further condition of the row in words, for the documentation.
    """

    outcome: str
    level: str
    says: str
    looks: str = ""
    when: When | None = None
    also: str = ""

    @property
    def details(self) -> tuple[str, ...]:
        return (self.level,)


@dataclass(frozen=True)
class VerdictTable:
    """An ordered table of conditions and reference levels that labels trainings. Where no row
    holds, the label is `plateau`.

    Attributes:
        rows: The rows in the order in which they are tried. All rows `AtLevel` are tried together, in the place of the
            first of them.

    Raises:
        SpecError: If two rows give the same label.
    """

    rows: tuple[Rule | AtLevel, ...]

    def __post_init__(self) -> None:
        labels = [(row.outcome, detail) for row in self.rows for detail in row.details]
        if twice := [label for label in labels if labels.count(label) > 1]:
            raise SpecError(
                "the table of verdicts (rules that label trainings)",
                given=f"the label {twice[0]} in two rows",
                expected="each label in one row only",
                fix="join the two rows into one, or give one of the rows another detail",
            )

    def judge(self, parameters: Any, evidence: Evidence) -> Verdicts:
        """Labels each training at each probe. The label is that of the first row of this table whose condition
        holds."""
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

    def markdown(self) -> str:
        """Formats the table of rules by which trainings get their outcomes as Markdown, for the documentation."""
        lines = ["| outcome | detail | rule | what it looks like |", "|---|---|---|---|"]
        for row in self.rows:
            says = row.says
            if isinstance(row, AtLevel):
                says = f"loss within {AT_LEVEL:.0%} of `level_{row.level}`, {says}{row.also and '; and '}{row.also}"
            details = ", ".join(f"`{detail}`" for detail in row.details if detail)
            lines.append(f"| `{row.outcome}` | {details} | {says} | {row.looks} |")
        lines.append(
            "| `plateau` | | none of these | the loss falls no longer, at no reference level; or hardly moved |"
        )
        return "\n".join(lines).replace("|  |", "| |")


Verdicting: TypeAlias = VerdictTable | Mapping[str, VerdictTable]
"""One table, or one by the value of the parameter `variant_field`."""
