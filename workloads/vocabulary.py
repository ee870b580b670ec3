"""The labels that the ledger stores, each with its meaning: outcomes of trainings, and roles of attention heads.

The rules by which workloads and scores assign them: docs/outcomes.md and docs/roles.md. Imports no torch.
"""

from collections.abc import Mapping
from types import MappingProxyType

OUTCOMES: Mapping[str, str] = MappingProxyType(
    {
        "solved": "meets what its workload counts as a solution",
        "degenerate_zero": "stuck at a zero of the gradient that is no solution: dead attention, or a constant output",
        "marginal": "stuck at a reference level above the solution: the predictor uses part of the input",
        "runaway": "descends a valley at infinity that never reaches the solution",
        "plateau": "none of these; with the detail “moving” the loss still falls, and the run was too short or is slow",
        "overfit": "fits its sample and not fresh data",
        "diverged": "the loss turned non-finite or far too large",
        "pruned": "its trial was ended early by a pruner; left out of all rates but the shares by outcome",
        "failed": "raised an error; left out of all rates but the shares by outcome",
    }
)
"""How a training ends, in the order of every table and figure."""

MOVING_SHARE = 0.01
"""A loss that fell by more than this share over the last fifth of the steps still moves."""

STUCK_OUTCOMES = ("degenerate_zero", "marginal", "runaway")
"""The outcomes that count as stuck."""

PRUNED = "pruned"
UNJUDGED_OUTCOMES = (PRUNED, "failed")
"""The outcomes that say nothing about how a training would have ended. They count in no rate."""

JUDGED_OUTCOMES = tuple(name for name in OUTCOMES if name not in UNJUDGED_OUTCOMES)
"""What a workload may call a training; only a pruner makes it `pruned`, only an exception `failed`."""

NO_ROLE = "none"
ROLES: Mapping[str, str] = MappingProxyType(
    {
        "positional": "looks at one fixed offset",
        "syntactic": "looks at the other end of a grammatical relation, more often than any fixed offset would",
        "rare_token": "looks at the rarest tokens of a sentence, more often than chance would",
        NO_ROLE: "none of these",
    }
)
"""What an attention head does. A workload may add roles of its own, such as the solution that a head implements."""
