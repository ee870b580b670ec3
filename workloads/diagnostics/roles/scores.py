"""The role scores of heads from counts, and labels from scores, so that stored scores can be labelled anew. A score
that was not measured is NaN.

Axes: L training, N layer, H head, B sequence, T token, P pattern, R relation, D direction.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnsweep.workloads.diagnostics.roles.counts import PATTERNS, RoleCounts, pattern_mass
from attnsweep.workloads.diagnostics.roles.sentences import Sentences
from attnsweep.workloads.engine.contract import Batch, HeadScores, Lanes, P
from attnsweep.workloads.engine.functional import over_lanes, parted
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.vocabulary import NO_ROLE

COVERAGE = 0.5
"""The positional score considers offsets at which at least this share of the queries has a key: where few have one,
their share could be 1 by chance. Our choice."""
MIN_ARCS = 100
"""A relation is measured from this number of arcs on: with fewer a gain of 0.1 is within two standard errors. Our
choice."""
NULL_QUANTILE = 0.95
"""A rare-token head exceeds this quantile of its scores under permuted frequency ranks. Our choice."""
DIRECTIONS = ("to_governor", "to_dependent")
PATTERN_SCORE_NAMES = (*PATTERNS, *(f"{pattern}_uniform" for pattern in PATTERNS))
"""The scores of `score_patterns`. A workload may use them as its `head_score_names`."""


def score_names(relations: Sequence[str] = ()) -> tuple[str, ...]:
    """In the order of `role_scores`; each grammatical relation adds its own."""
    of_relations = itertools.product(relations, DIRECTIONS, ("accuracy", "gain"))
    return (
        *("positional_offset", "positional_share", "positional_mass"),
        *PATTERN_SCORE_NAMES,
        *("rare_token", "rare_token_null", "syntactic_accuracy", "syntactic_baseline", "syntactic_gain"),
        *(f"{kind}_{relation}_{direction}" for relation, direction, kind in of_relations),
    )


def role_scores(counts: RoleCounts) -> dict[str, NDArray[np.float64]]:
    """How far each head plays each role, by the name of the score.

    - `positional_offset`, `positional_share`, `positional_mass`: the offset k = key - query at which the strongest key
      is most often; among the queries that have a key at this offset, the share whose strongest key it is, and the mean
      attention on it.
    - `previous_token`, `duplicate_token`, `induction`: the share of attention on the pattern; with `_uniform`, the same
      for uniform attention.
    - `rare_token`: the share of queries whose strongest key is one of the two rarest tokens; `rare_token_null`: the
      95th percentile of this share with frequency ranks permuted.
    - `syntactic_accuracy`, `syntactic_baseline`, `syntactic_gain`: for the relation and direction with the largest
      gain, the accuracy of the head, that of the best fixed offset, and the difference. `accuracy_...` and `gain_...`
      have the accuracy and gain of each relation and direction.
    """
    sums = counts.sums
    scores = _positional(sums, counts.first_offset)
    for index, pattern in enumerate(PATTERNS):
        scores[pattern] = sums["pattern"][..., index] / sums["total"]
        scores[f"{pattern}_uniform"] = (sums["uniform"][index] / sums["n_queries"]).expand_as(sums["total"])
    if "n_rare" in sums:
        scores["rare_token"] = sums["rare_hits"] / sums["n_rare"]
        scores["rare_token_null"] = (sums["permuted_hits"] / sums["n_rare"]).quantile(NULL_QUANTILE, dim=-1)
    if "n_arcs" in sums:
        scores |= _syntactic(sums, counts.relations)
    missing = torch.full_like(sums["total"], torch.nan)
    return {name: scores.get(name, missing).cpu().numpy() for name in score_names(counts.relations)}


def _positional(sums: Mapping[str, Tensor], first_offset: int) -> dict[str, Tensor]:
    share = torch.where(sums["reach"] >= COVERAGE * sums["n_queries"], sums["hits"] / sums["reach"], -1.0)
    best = share.argmax(-1, keepdim=True)
    picked = share.gather(-1, best).squeeze(-1)
    mass = (sums["mass"] / sums["reach"]).gather(-1, best).squeeze(-1)
    return {
        "positional_offset": torch.where(picked > 0, (best.squeeze(-1) + first_offset).double(), torch.nan),
        "positional_share": picked.clamp_min(0.0),
        "positional_mass": torch.where(picked > 0, mass, torch.nan),
    }


def _syntactic(sums: Mapping[str, Tensor], relations: Sequence[str]) -> dict[str, Tensor]:
    n_arcs = torch.where(sums["n_arcs"] >= MIN_ARCS, sums["n_arcs"], torch.nan)
    accuracy = sums["arc_hits"] / n_arcs
    baseline = (sums["offset_hits"] / n_arcs).expand_as(accuracy)
    measured, scores = {"accuracy": accuracy, "baseline": baseline, "gain": accuracy - baseline}, {}
    best = measured["gain"].nan_to_num(-torch.inf).flatten(-2).argmax(-1, keepdim=True)
    for kind, values_DR in measured.items():
        scores[f"syntactic_{kind}"] = values_DR.flatten(-2).gather(-1, best).squeeze(-1)
        for (d, direction), (r, relation) in itertools.product(enumerate(DIRECTIONS), enumerate(relations)):
            scores[f"{kind}_{relation}_{direction}"] = values_DR[..., d, r]
    return scores


POSITIONAL_SHARE = 0.90
"""A head is positional if its `positional_share` is at least this. Source: Voita et al. 2019, section 5.1."""
SYNTACTIC_GAIN = 0.10
"""A syntactic head's accuracy exceeds the best fixed offset's by this. Source: Voita et al. 2019, section 5.2."""
RARE_TOKEN_SHARE = 0.50
"""A rare-token head's `rare_token` is at least this and above `rare_token_null`, what chance explains. Our choice for
the heads of Voita et al. 2019, section 5.3."""


def roles_held(scores: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.bool_]]:
    """Which heads reach each role's thresholds: a head may have several roles."""
    rare = scores["rare_token"]
    return {
        "positional": scores["positional_share"] >= POSITIONAL_SHARE,
        "syntactic": scores["syntactic_gain"] >= SYNTACTIC_GAIN,
        "rare_token": (rare >= RARE_TOKEN_SHARE) & (rare > scores["rare_token_null"]),
    }


def label_roles(scores: Mapping[str, NDArray[np.float64]]) -> NDArray[np.str_]:
    """One role of each head: `positional`, if it holds, else the stronger of `syntactic` and `rare_token`, else `none`.

    If both hold, the stronger is the one with the larger (score - baseline) / (1 - baseline): where rare names are
    often subjects, a head that finds rare tokens also finds subjects, and vice versa.
    """
    held = roles_held(scores)
    with np.errstate(invalid="ignore", divide="ignore"):
        syntactic = scores["syntactic_gain"] / (1.0 - scores["syntactic_baseline"])
        rare = (scores["rare_token"] - scores["rare_token_null"]) / (1.0 - scores["rare_token_null"])
        rare_first = held["rare_token"] & ~(held["syntactic"] & (syntactic >= rare))
    cases = [held["positional"], rare_first, held["syntactic"]]
    return np.select(cases, ["positional", "rare_token", "syntactic"], NO_ROLE)


ROLE_SHARE = 0.5
"""A head has the role of a token pattern from this share of its attention on. Our choice."""

_ROLES = ("previous_token", "induction")


def score_patterns(
    module: nn.Module, attention: Callable[[nn.Module, Tensor], Tensor], lanes: Lanes[P], state: State, batch: Batch
) -> HeadScores:
    """Scores causal attention heads on token patterns, and labels their roles: a workload's `score_heads`.

    A score is the share of a head's attention that falls on the pattern, over the queries that count;
    `<pattern>_uniform` is that of uniform attention. The role is `previous_token` or, failing that, `induction` if that
    score is at least `ROLE_SHARE`, else `none`.

    Args:
        attention: From one training's module and tokens (n_sequences, n_tokens) the attention weights (n_layers,
            n_sequences, n_heads, n_tokens, n_tokens).
        batch: `token`, int64, (n_trainings, n_sequences, n_tokens); and bool of this shape: the queries at which
            `induction` and `duplicate_token` are scored, `counts`, and `previous_token`, `needs_previous`.
    """

    def masses(module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        return _masses(attention(module, batch["token"]), batch)

    template = module.to(lanes.device, lanes.dtype)
    read = {name: batch[name] for name in ("token", "counts", "needs_previous")}
    with torch.no_grad():
        mass_LNHP, uniform_LP = over_lanes(template, masses)(*parted(template, state), read)
    uniform_LNHP = uniform_LP[:, None, None].expand_as(mass_LNHP)
    values = (*mass_LNHP.cpu().numpy().transpose(3, 0, 1, 2), *uniform_LNHP.cpu().numpy().transpose(3, 0, 1, 2))
    scores = dict(zip(PATTERN_SCORE_NAMES, values, strict=True))
    return HeadScores(scores=scores, role=np.select([scores[role] >= ROLE_SHARE for role in _ROLES], _ROLES, NO_ROLE))


def _masses(weight_NBHTT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    weight_NHBTT = weight_NBHTT.transpose(1, 2)
    has_previous_T = torch.arange(weight_NBHTT.shape[-1], device=weight_NBHTT.device) > 0
    token_BT, masses, uniform = batch["token"], [], []
    for index, pattern in enumerate(PATTERNS):
        query_BT = batch["needs_previous"] & has_previous_T if pattern == "previous_token" else batch["counts"]
        sentences = Sentences(
            queries=query_BT, keys=torch.ones_like(query_BT), is_causal=True, query_tokens=token_BT, key_tokens=token_BT
        )
        mass_NHP, uniform_P, total_NH = pattern_mass(weight_NHBTT, sentences)
        masses.append(mass_NHP[..., index] / total_NH)
        uniform.append(uniform_P[index] / query_BT.sum())
    return torch.stack(masses, -1), torch.stack(uniform)
