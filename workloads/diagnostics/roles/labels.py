"""From scores to roles. Labels follow from scores: whoever has the scores can draw the lines elsewhere."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.vocabulary import NO_ROLE

POSITIONAL_SHARE = 0.90
"""Voita et al. 2019, section 5.1."""
SYNTACTIC_GAIN = 0.10
"""Percentage points over the best fixed offset; Voita et al. 2019, section 5.2."""
RARE_TOKEN_SHARE = 0.50
"""And above the null. Ours; such heads: Voita et al. 2019, section 5.3."""


def roles_held(scores: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.bool_]]:
    """Which roles hold, each by itself: several may, or none. An unmeasured role does not hold."""
    rare = scores["rare_token"]
    return {
        "positional": scores["positional_share"] >= POSITIONAL_SHARE,
        "syntactic": scores["syntactic_gain"] >= SYNTACTIC_GAIN,
        "rare_token": (rare >= RARE_TOKEN_SHARE) & (rare > scores["rare_token_null"]),
    }


def label_roles(scores: Mapping[str, NDArray[np.float64]]) -> NDArray[np.str_]:
    """One label among `ROLES` for each head.

    `positional` goes first: the other two are measured against what position or chance explains. Where both of these
    hold, the label is the one that covers more of what its own baseline leaves, (score - baseline) / (1 - baseline):
    where rare names are subjects, a head that finds rare tokens finds subjects too, and the other way about.
    """
    held = roles_held(scores)
    with np.errstate(invalid="ignore", divide="ignore"):
        syntactic = scores["syntactic_gain"] / (1.0 - scores["syntactic_baseline"])
        rare = (scores["rare_token"] - scores["rare_token_null"]) / (1.0 - scores["rare_token_null"])
        rare_first = held["rare_token"] & ~(held["syntactic"] & (syntactic >= rare))
    cases = [held["positional"], rare_first, held["syntactic"]]
    return np.select(cases, ["positional", "rare_token", "syntactic"], NO_ROLE)
