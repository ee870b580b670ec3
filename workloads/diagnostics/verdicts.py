"""A workload's verdicts as a table: the first row that holds is a training's label. Axes: L lane, P probe."""

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
    """Where the loss is below the level `solved`."""
    return evidence.metrics["eval_loss"] < evidence.levels["solved"][:, None]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A row of a table: an outcome where a condition holds.

    Attributes:
        outcome: The outcome.
        when: Where it holds: a function, or a text such as `accuracy >= 0.99`.
        says: The condition in words; by default the text.
        looks: What such a training looks like.
        details: The details that it may give; by default none.
        which: If there are several, the one of each training at each probe, (L, P).
    """

    outcome: str
    when: When
    says: str = ""
    looks: str = ""
    details: tuple[str, ...] = ("",)
    which: Callable[[Evidence], NDArray[np.str_]] | None = None

    def __post_init__(self) -> None:
        if not self.says:
            of_own = "a condition of the workload's own"
            object.__setattr__(self, "says", self.when if isinstance(self.when, str) else of_own)

    @classmethod
    def diverged(cls, level: str = "zero", looks: str = "") -> Self:
        """Where the loss is not finite, or far above a level, by default that of the predictor 0."""
        return cls(
            outcome="diverged",
            when=lambda _, evidence: has_diverged(evidence.metrics["eval_loss"], evidence.levels[level]),
            says=f"loss not finite, or above {DIVERGED_FACTOR:g} times `level_{level}` and above its own start",
            looks=looks,
        )

    @classmethod
    def solved(cls, says: str = "loss below `loss_level`", looks: str = "") -> Self:
        """Where the loss is below the level `solved`, which `says` puts in words."""
        return cls(outcome="solved", when=below_solved, says=says, looks=looks)

    @classmethod
    def moving(cls) -> Self:
        """Where the loss still falls: before the last row."""
        return cls(
            outcome="plateau",
            details=("moving",),
            when=lambda _, evidence: is_moving(evidence.steps, evidence.metrics["eval_loss"]),
            says=f"none of these, and the loss fell by more than {MOVING_SHARE:.0%} over the last fifth of the steps",
            looks="still learning: the run was too short, or is slow",
        )

    def cases(self, parameters: Any, evidence: Evidence) -> dict[Label, NDArray[np.bool_]]:
        """Where it holds, by label."""
        holds = where_held(self.when, parameters, evidence)
        if self.which is None:
            return {(self.outcome, self.details[0]): holds}
        detail = self.which(evidence)
        return {(self.outcome, each): holds & (detail == each) for each in self.details}


@dataclass(frozen=True, kw_only=True)
class AtLevel:
    """A row of a table: an outcome where the loss stands at a reference level, which then is the detail.

    The detail names all levels of the table's rows that the loss does not tell from this one: see `standing`.

    Attributes:
        outcome: The outcome.
        level: The level's name. Trainings that have no such level do not get this label.
        says: The predictor that has this loss, in words.
        looks: What such a training looks like.
        when: What must hold besides.
        also: The same in words.
    """

    outcome: str
    level: str
    says: str
    looks: str = ""
    when: When | None = None
    also: str = ""

    @property
    def details(self) -> tuple[str, ...]:
        """The level."""
        return (self.level,)


@dataclass(frozen=True)
class VerdictTable:
    """An ordered table of rules and levels; its last row is `plateau`, where no other holds.

    A workload returns it from `verdicts`.

    Attributes:
        rows: In the order in which they are tried. All levels are tried together, in the place of the first of them.

    Raises:
        LabelError: If a label stands in two rows.
    """

    rows: tuple[Rule | AtLevel, ...]

    def __post_init__(self) -> None:
        labels = [(row.outcome, detail) for row in self.rows for detail in row.details]
        if twice := [label for label in labels if labels.count(label) > 1]:
            raise LabelError(
                "a table of verdicts", given=f"{twice[0]} in two rows", expected="each label once", fix="join the rows"
            )

    def judge(self, parameters: Any, evidence: Evidence) -> Verdicts:
        """Labels each training at each probe with the first row that holds.

        Args:
            parameters: Those of the first lane.
            evidence: The measurements of L trainings at P probes.
        """
        levels = [row for row in self.rows if isinstance(row, AtLevel)]
        cases: dict[Label, NDArray[np.bool_]] = {}
        for row in self.rows:
            if isinstance(row, Rule):
                cases |= row.cases(parameters, evidence)
            elif row is levels[0]:
                stuck = {each.level: each.outcome for each in levels}
                where = {
                    each.level: where_held(each.when, parameters, evidence) for each in levels if each.when is not None
                }
                cases |= standing(evidence.metrics["eval_loss"], evidence.levels, stuck, where)
        return Verdicts.first_of(cases)

    def markdown(self) -> str:
        """The table for the documentation."""
        lines = ["| outcome | detail | rule | what it looks like |", "|---|---|---|---|"]
        for row in self.rows:
            says = row.says
            if isinstance(row, AtLevel):
                says = f"loss within {AT_LEVEL:.0%} of `level_{row.level}`, {says}{row.also and '; and '}{row.also}"
            details = ", ".join(f"`{each}`" for each in row.details if each)
            lines.append(f"| `{row.outcome}` | {details} | {says} | {row.looks} |")
        lines.append(
            "| `plateau` | | none of these | the loss falls no longer, at no reference level; or hardly moved |"
        )
        return "\n".join(lines).replace("|  |", "| |")


def check_each_can_occur(workload: Workload[Any], parameters: Any) -> None:
    """Refuses an outcome that no training can end with, as far as the texts of a table tell.

    Args:
        workload: The problem.
        parameters: Those of the first lane.

    Raises:
        LabelError: If no row of the table gives an outcome of the workload's own, or a text holds nowhere but where the
            text of a row before it does.
    """
    table = workload.verdicts(parameters)
    if not isinstance(table, VerdictTable):
        return
    given = {row.outcome for row in table.rows}
    for outcome in workload.outcomes:
        if outcome not in given:
            raise LabelError(
                f"{workload.name}.outcomes",
                given=outcome,
                expected="an outcome of a row of its table",
                fix="add a Rule that gives it, or leave it out",
            )
    texts = [(row.outcome, row.when) for row in table.rows if isinstance(row, Rule) and isinstance(row.when, str)]
    for (outcome, when), (later, then) in combinations(texts, 2):
        if implies(then, when):
            raise LabelError(
                f"the outcome {later} of {workload.name}",
                given=then,
                expected=f"a condition that holds somewhere where that of {outcome}, before it, does not: {when}",
                fix="change their order, or one of the two; the first row that holds counts",
            )


def check_near_levels(workload: Workload[Any], parameters: Any, evidence: Evidence) -> None:
    """Refuses a `judge` that names one of two levels where the loss does not tell them apart.

    Two levels are near if they differ by at most twice `AT_LEVEL`: a loss between them is at both. At such a loss, the
    levels of a table name both, and its rules say by what else they tell trainings apart: it need not be checked.

    Args:
        workload: The problem.
        parameters: Those of the first lane.
        evidence: Measurements of L trainings. Their labels are asked for anew, at losses equal to their levels.

    Raises:
        LabelError: If a label at one of two near levels has the name of one of them alone.
    """
    if type(workload).judge is Workload.judge:
        return
    levels = {name: level_L for name, level_L in evidence.levels.items() if name != "solved"}
    for one, other in combinations(levels, 2):
        size_L = np.maximum(np.abs(levels[one]), np.abs(levels[other]))
        near_L = np.abs(levels[one] - levels[other]) <= 2.0 * AT_LEVEL * size_L
        for level_L in (levels[one], levels[other]) if near_L.any() else ():
            loss_LP = np.where(near_L, level_L, np.nan)[:, None] + np.zeros_like(evidence.metrics["eval_loss"])
            at_level = replace(evidence, metrics=evidence.metrics | {"eval_loss": loss_LP})
            detail_L = judged(workload, parameters, at_level).detail[:, -1]
            if (wrong_L := near_L & ((detail_L == one) | (detail_L == other))).any():
                lane = int(wrong_L.argmax())
                raise LabelError(
                    f"{workload.name}.judge",
                    given=f"the detail {detail_L[lane]} at a loss of {level_L[lane]:.4g}",
                    expected=f"one that names both levels, such as {one}{OR}{other}: {one} is {levels[one][lane]:.4g}"
                    f" and {other} is {levels[other][lane]:.4g}, nearer than the loss can tell ({2 * AT_LEVEL:.0%})",
                    fix="judge with `judge_by_levels` or `standing`; if more than the loss tells them apart, say it in"
                    f" the detail, such as `{one} by accuracy`",
                )
