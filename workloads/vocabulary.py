"""The labels that the ledger stores, each with its meaning: outcomes of trainings, and roles of attention heads.

The rules by which workloads and scores assign them: docs/outcomes.md and docs/roles.md. Imports no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a training may end.

    Attributes:
        sentence: What it means.
        colour: Its colour in every figure, as `#rrggbb`. Shipped outcomes have those of Okabe & Ito 2008, all but
            yellow, which is hard to see on white. An outcome of a workload's own that names none gets one that can be
            told from these.
        is_stuck: Whether it counts as stuck.
        when: Where it holds: read by `attnsweep.problem` alone. A text such as `accuracy >= 0.99`, or a condition.
        is_judged: Whether a workload gives it. The others say nothing about how a training would have ended, and count
            in no rate: only a pruner makes a training `pruned`, only an exception `failed`.
    """

    sentence: str
    colour: str = ""
    is_stuck: bool = False
    is_judged: bool = True
    when: Any = None


@dataclass(frozen=True, slots=True)
class Role:
    """What an attention head may do.

    Attributes:
        sentence: What it means.
        colour: Its colour in every figure.
        score: The score that decides it. If the score is measured, the role could occur.
    """

    sentence: str
    colour: str
    score: str | None = None


PRUNED = "pruned"
OUTCOMES: Mapping[str, Outcome] = MappingProxyType(
    {
        "solved": Outcome("meets what its workload counts as a solution", "#009E73"),
        "degenerate_zero": Outcome(
            "stuck at a zero of the gradient that is no solution: dead attention, or a constant output",
            "#0072B2",
            is_stuck=True,
        ),
        "marginal": Outcome(
            "stuck at a reference level above the solution: the predictor uses part of the input",
            "#56B4E9",
            is_stuck=True,
        ),
        "runaway": Outcome("descends a valley at infinity that never reaches the solution", "#CC79A7", is_stuck=True),
        "plateau": Outcome(
            "none of these; with the detail “moving” the loss still falls, and the run was too short or is slow",
            "#E69F00",
        ),
        "overfit": Outcome("fits its sample and not fresh data", "#000000"),
        "diverged": Outcome("the loss turned non-finite or far too large", "#D55E00"),
        PRUNED: Outcome(
            "its trial was ended early by a pruner; left out of all rates but the shares by outcome",
            "#999999",
            is_judged=False,
        ),
        "failed": Outcome(
            "raised an error; left out of all rates but the shares by outcome", "#595959", is_judged=False
        ),
    }
)
"""In the order of every table and figure."""

AT_LEVEL = 0.01
"""A loss within this share of a reference level is at the level."""
MOVING_SHARE = 0.01
"""A loss that fell by more than this share over the last fifth of the steps still moves."""

_OWN_COLOURS = ("#882255", "#999933", "#332288", "#44AA99", "#DDCC77", "#AA4499")
"""Of Tol's scheme `muted`, for outcomes of a workload's own that name no colour."""


def with_own(own: Mapping[str, Outcome]) -> Mapping[str, Outcome]:
    """The shipped outcomes and a workload's own, in the order of every table and figure: those that no workload gives
    are last."""
    colours = iter(_OWN_COLOURS * len(own))
    coloured = {name: each if each.colour else replace(each, colour=next(colours)) for name, each in own.items()}
    given = {name: each for name, each in OUTCOMES.items() if each.is_judged}
    return MappingProxyType({**given, **coloured, **OUTCOMES})


STUCK_OUTCOMES = tuple(name for name, each in OUTCOMES.items() if each.is_stuck)
STUCK = "stuck"
"""Stands for all of `STUCK_OUTCOMES` where a sweep names an outcome."""
JUDGED_OUTCOMES = tuple(name for name, each in OUTCOMES.items() if each.is_judged)
UNJUDGED_OUTCOMES = tuple(name for name, each in OUTCOMES.items() if not each.is_judged)

NO_ROLE = "none"
ROLES: Mapping[str, Role] = MappingProxyType(
    {
        "positional": Role("looks at one fixed offset", "#0072B2", "positional_share"),
        "syntactic": Role(
            "looks at the other end of a grammatical relation, more often than any fixed offset would",
            "#D55E00",
            "syntactic_gain",
        ),
        "rare_token": Role(
            "looks at the rarest tokens of a sentence, more often than chance would", "#009E73", "rare_token"
        ),
        NO_ROLE: Role("none of these", "#595959"),
    }
)
"""A workload may add roles of its own, such as the solution that a head implements."""
