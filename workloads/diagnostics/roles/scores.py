"""Role scores of heads from their counts, and role labels from the scores. NaN marks a score that was not measured.

Labels depend on the stored scores only, so they can be recomputed with other thresholds.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.diagnostics.roles.counts import RoleCounts
from attnsweep.workloads.diagnostics.roles.token_patterns import PATTERNS
from attnsweep.workloads.vocabulary import NO_ROLE

COVERAGE = 0.5
"""An offset is a candidate if at least this share of the queries has a key there. Otherwise the offset from the last
query to the first key, which only one query has, could reach a share of 1. Ours."""
MIN_ARCS = 100
"""A relation is measured if it has at least this many arcs: with fewer, ten percentage points are within two standard
errors. Ours."""
NULL_QUANTILE = 0.95
"""The quantile of the rare-token score under permuted ranks that is its null. Ours."""
DIRECTIONS = ("to_governor", "to_dependent")


def score_names(relations: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of all scores, in order."""
    return (
        "positional_offset",
        "positional_share",
        "positional_mass",
        *PATTERNS,
        *(f"{pattern}_uniform" for pattern in PATTERNS),
        "rare_token",
        "rare_token_null",
        "syntactic_accuracy",
        "syntactic_baseline",
        "syntactic_gain",
        *(
            f"{kind}_{relation}_{direction}"
            for relation in relations
            for direction in DIRECTIONS
            for kind in ("accuracy", "gain")
        ),
    )


def role_scores(counts: RoleCounts) -> dict[str, NDArray[np.float64]]:
    """Scores by name, in a fixed order; each has the shape (...) of the counts.

    - `positional_offset`, `positional_share`, `positional_mass`: the offset k = key - query whose key is most often the
      strongest; of the queries that have a key there the share for which it is; and their mean attention on it.
    - `previous_token`, `duplicate_token`, `induction`: the share of the attention on the pattern; with `_uniform`, that
      of uniform attention.
    - `rare_token`: the share of queries whose strongest key is one of the two rarest tokens; `rare_token_null`: the
      95th percentile of the same with ranks permuted.
    - `syntactic_accuracy`, `syntactic_baseline`, `syntactic_gain`: of the relation and direction with the largest gain,
      the accuracy, that of the best fixed offset, and the difference; `accuracy_` and `gain_` also by relation and
      direction.

    Args:
        counts: From `count_roles`.
    """
    found = _positional(counts)
    for index, pattern in enumerate(PATTERNS):
        found[pattern] = counts.pattern[..., index] / counts.total
    for index, pattern in enumerate(PATTERNS):
        found[f"{pattern}_uniform"] = (counts.uniform[index] / counts.n_queries).expand_as(counts.total)
    found |= _rare(counts)
    found |= _syntactic(counts)
    return {name: found[name].cpu().numpy() for name in score_names(counts.relations)}


def _positional(counts: RoleCounts) -> dict[str, Tensor]:
    share = torch.where(counts.reach >= COVERAGE * counts.n_queries, counts.hits / counts.reach, -1.0)
    best = share.argmax(-1, keepdim=True)
    offset = (best.squeeze(-1) + counts.first_offset).double()
    picked = share.gather(-1, best).squeeze(-1)
    mass = (counts.mass / counts.reach).gather(-1, best).squeeze(-1)
    return {
        "positional_offset": torch.where(picked > 0, offset, torch.nan),
        "positional_share": picked.clamp_min(0.0),
        "positional_mass": torch.where(picked > 0, mass, torch.nan),
    }


def _rare(counts: RoleCounts) -> dict[str, Tensor]:
    if counts.rare_hits is None or counts.permuted_hits is None or counts.n_rare is None:
        missing = torch.full_like(counts.total, torch.nan)
        return {"rare_token": missing, "rare_token_null": missing}
    return {
        "rare_token": counts.rare_hits / counts.n_rare,
        "rare_token_null": (counts.permuted_hits / counts.n_rare).quantile(NULL_QUANTILE, dim=-1),
    }


def _syntactic(counts: RoleCounts) -> dict[str, Tensor]:
    missing = torch.full_like(counts.total, torch.nan)
    found = dict.fromkeys(("syntactic_accuracy", "syntactic_baseline", "syntactic_gain"), missing)
    if counts.arc_hits is None or counts.offset_hits is None or counts.n_arcs is None:
        return found
    n_arcs = torch.where(counts.n_arcs >= MIN_ARCS, counts.n_arcs, torch.nan)
    accuracy = counts.arc_hits / n_arcs
    baseline = (counts.offset_hits / n_arcs).expand_as(accuracy)
    gain = accuracy - baseline
    for r, relation in enumerate(counts.relations):
        for d, direction in enumerate(DIRECTIONS):
            found[f"accuracy_{relation}_{direction}"] = accuracy[..., d, r]
            found[f"gain_{relation}_{direction}"] = gain[..., d, r]
    best = gain.nan_to_num(-torch.inf).flatten(-2).argmax(-1, keepdim=True)
    for name, each in (("accuracy", accuracy), ("baseline", baseline), ("gain", gain)):
        found[f"syntactic_{name}"] = each.flatten(-2).gather(-1, best).squeeze(-1)
    return found


POSITIONAL_SHARE = 0.90
"""Voita et al. 2019, section 5.1."""
SYNTACTIC_GAIN = 0.10
"""Accuracy above that of the best fixed offset; Voita et al. 2019, section 5.2."""
RARE_TOKEN_SHARE = 0.50
"""The score must also exceed the null. The threshold is ours; Voita et al. 2019, section 5.3, describe such heads."""


def roles_held(scores: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.bool_]]:
    """Which roles hold, each judged by itself: several may hold, or none. An unmeasured role does not hold."""
    rare = scores["rare_token"]
    return {
        "positional": scores["positional_share"] >= POSITIONAL_SHARE,
        "syntactic": scores["syntactic_gain"] >= SYNTACTIC_GAIN,
        "rare_token": (rare >= RARE_TOKEN_SHARE) & (rare > scores["rare_token_null"]),
    }


def label_roles(scores: Mapping[str, NDArray[np.float64]]) -> NDArray[np.str_]:
    """One label among `ROLES` for each head.

    `positional` takes precedence, because the other two are measured against what position or chance explains. If both
    of these hold, the label is the one with the larger (score - baseline) / (1 - baseline). Both can hold for one head:
    if rare names are often subjects, a head that finds rare tokens also finds subjects, and vice versa.
    """
    held = roles_held(scores)
    with np.errstate(invalid="ignore", divide="ignore"):
        syntactic = scores["syntactic_gain"] / (1.0 - scores["syntactic_baseline"])
        rare = (scores["rare_token"] - scores["rare_token_null"]) / (1.0 - scores["rare_token_null"])
        rare_first = held["rare_token"] & ~(held["syntactic"] & (syntactic >= rare))
    cases = [held["positional"], rare_first, held["syntactic"]]
    return np.select(cases, ["positional", "rare_token", "syntactic"], NO_ROLE)
