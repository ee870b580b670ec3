"""The labels that a sweep's ledger stores: outcomes of trainings, and roles of heads. docs/outcomes.md and
docs/heads.md give the rules by which they are assigned. This module does not import torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """A way in which a training may end.

    Attributes:
        sentence: What it means.
        colour: `#rrggbb` in figures; if empty, one that differs from those of shipped outcomes (Okabe & Ito 2008).
        when: A text such as `accuracy >= 0.99`, or a function. Only `attnsweep.problem` reads it.
        is_judged: Whether a table of verdicts gives it. `pruned` and `failed` say nothing about how the training would
            have ended, and count only in the shares by outcome.
    """

    sentence: str
    colour: str = ""
    is_stuck: bool = False
    is_judged: bool = True
    when: Any = None


@dataclass(frozen=True, slots=True)
class Role:
    """What a head may do; `score` is the head score that decides it."""

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
            "stuck at a reference level above the solution: a simple predictor, such as the best constant",
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
"""The shipped outcomes, in the order of tables and figures."""

AT_LEVEL = 0.01
"""A loss is at a reference level if it is within this share of the level."""
MOVING_SHARE = 0.01
"""A training is still moving if its loss fell by more than this share over the last fifth of its steps."""

_OWN_COLOURS = ("#882255", "#999933", "#332288", "#44AA99", "#DDCC77", "#AA4499")
"""For outcomes that declare none: the scheme `muted` by Tol."""


def with_own(own: Mapping[str, Outcome]) -> Mapping[str, Outcome]:
    """In the order of tables and figures: shipped ones that workloads give, the workload's own, then those that no
    workload gives, such as `failed`."""
    colours = iter(_OWN_COLOURS * len(own))
    coloured = {
        name: outcome if outcome.colour else replace(outcome, colour=next(colours)) for name, outcome in own.items()
    }
    judged = {name: outcome for name, outcome in OUTCOMES.items() if outcome.is_judged}
    return MappingProxyType({**judged, **coloured, **OUTCOMES})


STUCK_OUTCOMES = tuple(name for name, outcome in OUTCOMES.items() if outcome.is_stuck)
STUCK = "stuck"
"""The word by which a sweep names all stuck outcomes, a workload's own too."""
UNJUDGED_OUTCOMES = tuple(name for name, outcome in OUTCOMES.items() if not outcome.is_judged)

NEGATIVE_LOSS = "negative loss"
"""The detail of trainings that diverged because their loss fell below 0, where it may not."""

RESERVED_METRICS = (
    *("loss", "eval_loss", "grad_norm", "param_norm"),
    *("training_id", "trial", "replicate", "step", "value"),
)
"""No workload's metric may have these names: the engine measures the first four, the others are columns of curves."""

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
"""The shipped roles by label. Workloads may add their own, such as the solution that a head implements."""
