"""Trainings in bfloat16, with and without a state in float32."""

from typing import Any

import pytest

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults

WORKLOAD = CategoryPairs()
SMALL: dict[str, Value] = {"n_categories": 5, "n_positions": 6, "dtype": "bfloat16", "learning_rate": 0.03}


def _pack(seeds: range, **values: Value) -> Pack[Any]:
    return Pack(WORKLOAD, [Training(defaults(WORKLOAD, **(SMALL | values)), seed) for seed in seeds])


@pytest.mark.parametrize("float32_state", [False, True])
def test_bfloat16_solves_system_p(float32_state: bool) -> None:
    result = _pack(range(4), init_sigma=0.05, n_steps=600, float32_state=float32_state).train_to_end(7)
    assert (result.last("eval_loss") < result.evidence.levels["solved"]).all()
