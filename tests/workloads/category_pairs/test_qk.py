"""k and q trained apart or as their product: the same functions, and which forms are refused."""

import pytest
import torch

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from tests.refusals import refused

WORKLOAD = CategoryPairs()
SMALL: dict[str, Value] = {"n_categories": 4, "n_positions": 6}
FULL: dict[str, Value] = {"expectation": "fixed_sample", "batch_size": 8}
KEYS = {"positions_only": ("k_RM", "q_RK", "q_MK"), "categories_only": ("k_RN", "q_RN", "q_NN")}


@pytest.mark.parametrize("variant", ["positions_only", "categories_only", "solution_2", "combined"])
def test_both_forms_are_the_same_function(variant: str) -> None:
    values = SMALL | {"variant": variant} | ({} if variant in KEYS else FULL)
    factored = WORKLOAD.build(defaults(WORKLOAD, **values, qk="factored", qk_rank=7)).double()
    merged = WORKLOAD.build(defaults(WORKLOAD, **values, qk="merged")).double()
    streams = Streams(torch.arange(1))
    for name, value in [*factored.named_parameters(), *factored.named_buffers()]:
        if value.is_floating_point() and value.dim() > 1:
            value.data = streams.normal(name, tuple(value.shape))[0]
    k_name, q_name, product_name = KEYS.get(variant, ("k_SS", "q_SS", "kq_SS"))
    of_factored = dict(factored.named_parameters()) | dict(factored.named_buffers())
    k, q = of_factored.pop(k_name), of_factored.pop(q_name)
    assert k.shape[0] == q.shape[0] == 7
    merged.load_state_dict({**of_factored, product_name: k.T @ q})
    losses = [WORKLOAD.loss(module, {}) for module in (factored, merged)]
    assert losses[0].item() > 0
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("values", "subject"),
    [
        ({"qk": "merged", "qk_rank": 4}, "qk_rank"),
        ({"qk_rank": 30}, "qk_rank"),
        ({"qk": "factored", "qk_rank": 4}, "qk_rank"),
        ({"qk": "both"}, "qk"),
    ],
)
def test_forms_that_cannot_solve_or_mean_nothing_are_refused(values: dict[str, Value], subject: str) -> None:
    with refused(subject, SpecError):
        defaults(WORKLOAD, **SMALL, **values)
    defaults(WORKLOAD, **SMALL, qk="factored", qk_rank=5)
