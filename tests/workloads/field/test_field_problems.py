"""The conformance of all problems of this folder."""

from typing import Any

import pytest

import attnsweep as at
from attnsweep.workloads.field.abrupt_learning import ABRUPT_LEARNING
from attnsweep.workloads.field.histogram import HISTOGRAM
from attnsweep.workloads.field.in_context_regression import IN_CONTEXT_REGRESSION
from attnsweep.workloads.field.markov_chains import MARKOV_CHAINS
from attnsweep.workloads.field.modular_addition import ModularAddition
from attnsweep.workloads.field.sequence_tasks import SEQUENCE_TASKS
from attnsweep.workloads.field.sparse_parity import SparseParity

ADDER = {"p": 11, "d_model": 8, "n_heads": 2, "d_ffn": 32, "init_sigma": 0.3, "learning_rate": 0.03}
QUICK: list[tuple[type[at.Problem], list[dict[str, Any]]]] = [
    (IN_CONTEXT_REGRESSION, [{}, {"kq": "merged", "init_sigma": None}]),
    (ModularAddition, [ADDER, ADDER | {"norm": "pre", "attention_scale": 0.5}]),
    (SparseParity, [{}, {"norm": "pre", "init_sigma": 0.1}]),
]
LONG: list[tuple[type[at.Problem], list[dict[str, Any]]]] = [
    (
        ABRUPT_LEARNING,
        [
            {},
            {"attention": "softmax", "norm": "none", "optimal_scale": 3.0, "init_sigma": None},
            {"task": "permutation", "n_blocks": 2},
        ],
    ),
    (HISTOGRAM, [{}, {"mixing": "dot", "softmax": False, "norm": "pre", "init_sigma": 0.1}, {"mixing": "lin"}]),
    (
        MARKOV_CHAINS,
        [{"n_context": 8}, {"n_context": 8, "chains": "doubly_stochastic", "positions": "learned", "init_sigma": None}],
    ),
    (
        SEQUENCE_TASKS,
        [
            {"task": "brackets", "n_kinds": 2},
            {"task": "majority", "positions": "none", "attention": "linear", "init_sigma": 0.1},
            {"task": "recall", "norm": "none"},
        ],
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "values"), [*QUICK, *(pytest.param(*case, marks=pytest.mark.scale) for case in LONG)]
)
def test_conformance(problem: type[at.Problem], values: list[dict[str, Any]]) -> None:
    parameters = [problem.parameters.resolve(each | {"n_steps": 20}) for each in values]
    at.check_workload(problem(), parameters, quick=True)
