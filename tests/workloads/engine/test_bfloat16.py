"""Trainings in bfloat16, with and without a state in float32."""

from typing import Any

import numpy as np
import pytest

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults

WORKLOAD = CategoryPairs()
SMALL: dict[str, Value] = {"n_categories": 5, "n_positions": 6, "dtype": "bfloat16", "learning_rate": 0.03}
KINDS = [{"optimizer": "adam", "n_steps": 40}, {"n_steps": 40, "float32_state": True}, {"n_steps": 40}]


def _pack(seeds: range, **values: Value) -> Pack[Any]:
    return Pack(WORKLOAD, [Training(defaults(WORKLOAD, **(SMALL | values)), seed) for seed in seeds])


@pytest.mark.parametrize("float32_state", [False, True])
def test_bfloat16_solves_system_p(float32_state: bool) -> None:
    result = _pack(range(4), init_sigma=0.05, n_steps=600, float32_state=float32_state).train_to_end(7)
    assert (result.last("eval_loss") < result.evidence.levels["solved"]).all()


@pytest.mark.scale
@pytest.mark.slow
def test_a_step_below_the_spacing_of_bfloat16_is_lost_unless_the_state_is_float32() -> None:
    """Near the zero a step changes a weight by lr lambda_+ of itself, here 0.0017; half the spacing
    is 0.002 or more."""
    values: dict[str, Value] = {"init_sigma": 1e-3, "learning_rate": 7e-4, "n_steps": 1500}
    in_bfloat16 = _pack(range(4), **values).train_to_end(7).evidence.metrics["param_norm"]
    mixed = _pack(range(4), **values, float32_state=True).train_to_end(7).evidence.metrics["param_norm"]
    assert (in_bfloat16[:, -1] < 1.01 * in_bfloat16[:, 0]).all()
    assert (mixed[:, -1] > 1.1 * mixed[:, 0]).all()


@pytest.mark.parametrize("values", KINDS)
def test_a_lane_trains_as_if_alone(values: dict[str, Value]) -> None:
    together, alone = _pack(range(5), **values).train_to_end(7), _pack(range(3, 4), **values).train_to_end(7)
    for name, found in alone.evidence.metrics.items():
        np.testing.assert_array_equal(found[0], together.evidence.metrics[name][3], err_msg=name)


@pytest.mark.parametrize("values", [*KINDS, {"optimizer": "lbfgs", "learning_rate": 1.0, "n_steps": 20}])
def test_a_resumed_pack_ends_like_an_uninterrupted_one(values: dict[str, Value]) -> None:
    whole, begun = _pack(range(3), **values), _pack(range(3), **values)
    begun.advance(9)
    trainings = [Training(defaults(WORKLOAD, **(SMALL | values)), seed) for seed in range(3)]
    resumed = Pack.resumed(WORKLOAD, trainings, begun.checkpoint())
    expected = whole.train_to_end(7).evidence.metrics
    for name, found in resumed.train_to_end(7).evidence.metrics.items():
        np.testing.assert_array_equal(found, expected[name], err_msg=name)
