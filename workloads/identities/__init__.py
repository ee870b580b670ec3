"""Identities: equations about a workload's gradients that hold exactly, at any weights and on any data.

The method `identities` of a `Workload` returns them. `attnsweep check-gradients` verifies them, and from some of them
follow quantities that gradient flow conserves. This package needs torch alone. docs/gradients.md has the derivations.
"""

from attnsweep.workloads.identities.equations import (
    AttentionRows,
    ClosedForm,
    EqualSums,
    Flat,
    KeyBias,
    NoGradient,
    Reader,
    RedundantBias,
    RowSums,
)
from attnsweep.workloads.identities.groups import (
    Group,
    low_rank,
    norm_gain,
    queries_and_keys,
    relu_neurons,
    rescaling,
    values_and_output,
)
from attnsweep.workloads.identities.identity import Conserved, Error, Identity, Part, Point

__all__ = (
    "AttentionRows",
    "ClosedForm",
    "Conserved",
    "EqualSums",
    "Error",
    "Flat",
    "Group",
    "Identity",
    "KeyBias",
    "NoGradient",
    "Part",
    "Point",
    "Reader",
    "RedundantBias",
    "RowSums",
    "low_rank",
    "norm_gain",
    "queries_and_keys",
    "relu_neurons",
    "rescaling",
    "values_and_output",
)
