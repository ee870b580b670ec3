"""Labels trainings by a table of conditions: the first row whose condition holds gives the outcome. Axes: L training, P
probe."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.conditions import implies
from attnsweep.workloads.diagnostics.outcomes import AT_LEVEL, DIVERGED_FACTOR, OR, has_diverged, is_moving, standing
from attnsweep.workloads.engine.contract import Evidence, Label, Verdicts, When, Workload, where_held
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.errors import LabelError
from attnsweep.workloads.vocabulary import MOVING_SHARE


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
        holds = where_held(self.when, parameters, evidence)
        if self.which is None:
            return {(self.outcome, self.details[0]): holds}
        detail = self.which(evidence)
        return {(self.outcome, name): holds & (detail == name) for name in self.details}


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
    """An ordered table of conditions and reference levels that labels trainings. `Workload.verdicts` returns it.

    Where no row holds, the label is `plateau`.

    Attributes:
        rows: The rows in the order in which they are tried. All rows `AtLevel` are tried together, in the place of the
            first of them.

    Raises:
        LabelError: If two rows give the same label.
    """

    rows: tuple[Rule | AtLevel, ...]

    def __post_init__(self) -> None:
        labels = [(row.outcome, detail) for row in self.rows for detail in row.details]
        if twice := [label for label in labels if labels.count(label) > 1]:
            raise LabelError(
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
        return Verdicts.first_of(cases)

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


def check_each_can_occur(workload: Workload[Any], parameters: Any) -> None:
    """Raises if the workload declares an outcome that no training can ever get, judging by the workload's table of
    verdicts (the ordered rules that label trainings).

    Raises:
        LabelError: If no row of the table gives an outcome that the workload declares, or if a condition given as text
            implies that of an earlier row, so that the earlier row always gives the label.
    """
    table = workload.verdicts(parameters)
    if not isinstance(table, VerdictTable):
        return
    table_outcomes = {row.outcome for row in table.rows}
    for outcome in workload.outcomes:
        if outcome not in table_outcomes:
            raise LabelError(
                f"{workload.name}.outcomes",
                given=outcome,
                expected="an outcome that a row of the workload's table of verdicts gives",
                fix="add a Rule with this outcome to the table, or remove it from `outcomes`",
            )
    texts = [(row.outcome, row.when) for row in table.rows if isinstance(row, Rule) and isinstance(row.when, str)]
    for (outcome, when), (later, later_when) in combinations(texts, 2):
        if implies(later_when, when):
            raise LabelError(
                f"the outcome {later} of {workload.name}",
                given=later_when,
                expected=f"a condition that does not imply {when}, the condition of the earlier row {outcome}",
                fix="exchange the two rows or change one condition: the first row whose condition holds gives the"
                " label, so the later row would never give its label",
            )


def check_near_levels(workload: Workload[Any], parameters: Any, evidence: Evidence) -> None:
    """Raises an error if a workload's own `judge` says that a training has reached one of two reference levels (losses
    known in advance), although the two are nearly equal, so that the loss cannot tell which of them it is.

    Two levels are so close if they differ by at most twice `AT_LEVEL`. A table of verdicts needs no check, because its
    rows `AtLevel` name both levels.

    Args:
        evidence: Measurements of some trainings. `judge` gets them again with losses equal to the levels that are too
            close.

    Raises:
        LabelError: If a loss equals one of two such levels and the detail is the name of only one of the two.
    """
    if type(workload).judge is Workload.judge:
        return
    levels = {name: level_L for name, level_L in evidence.levels.items() if name != "solved"}
    for first, second in combinations(levels, 2):
        size_L = np.maximum(np.abs(levels[first]), np.abs(levels[second]))
        near_L = np.abs(levels[first] - levels[second]) <= 2.0 * AT_LEVEL * size_L
        for level_L in (levels[first], levels[second]) if near_L.any() else ():
            loss_LP = np.where(near_L, level_L, np.nan)[:, None] + np.zeros_like(evidence.metrics["eval_loss"])
            at_level = replace(evidence, metrics=evidence.metrics | {"eval_loss": loss_LP})
            detail_L = judged(workload, parameters, at_level).detail[:, -1]
            if (wrong_L := near_L & ((detail_L == first) | (detail_L == second))).any():
                lane = int(wrong_L.argmax())
                raise LabelError(
                    f"{workload.name}.judge",
                    given=f"the detail {detail_L[lane]} at a loss of {level_L[lane]:.4g}",
                    expected=f"a detail that names both, such as {first}{OR}{second}: the losses of these two simple"
                    f" predictors, {levels[first][lane]:.4g} and {levels[second][lane]:.4g}, differ by less than"
                    f" {2 * AT_LEVEL:.0%}",
                    fix="use `judge_by_levels` or `standing` in `judge`; or, if another quantity than the loss tells"
                    f" the two predictors apart, name the quantity in the detail, such as `{first} by accuracy`",
                )
