"""The roles of attention heads: scores of what a head attends to, and labels. Formulas and sources: docs/roles.md."""

from attnsweep.workloads.diagnostics.roles.counts import RoleCounts, count_roles
from attnsweep.workloads.diagnostics.roles.scores import label_roles, role_scores, roles_held, score_names
from attnsweep.workloads.diagnostics.roles.sentences import Arcs, Sentences, fit_offsets
from attnsweep.workloads.diagnostics.roles.token_heads import PATTERN_SCORE_NAMES, score_patterns

__all__ = [
    "PATTERN_SCORE_NAMES",
    "Arcs",
    "RoleCounts",
    "Sentences",
    "count_roles",
    "fit_offsets",
    "label_roles",
    "role_scores",
    "roles_held",
    "score_names",
    "score_patterns",
]
