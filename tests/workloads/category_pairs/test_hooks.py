"""Results besides the outcome: head scores at each probe, and certificates of stuck trainings."""

from typing import Any

import numpy as np
import pytest

from attnsweep.workloads.category_pairs import CategoryPairs, certificates
from attnsweep.workloads.diagnostics.promotion import certify_stuck
from attnsweep.workloads.engine.contract import Certificate, Training
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults

WORKLOAD = CategoryPairs()


def _pack(n_lanes: int, **values: Value) -> tuple[Pack[Any], list[Training[Any]]]:
    trainings = [Training(defaults(WORKLOAD, **values), seed) for seed in range(n_lanes)]
    pack = Pack(WORKLOAD, trainings)
    pack.train_to_end()
    return pack, trainings


def _certified(pack: Pack[Any], trainings: list[Training[Any]]) -> list[Certificate | None]:
    result = pack.result()
    verdicts = judged(WORKLOAD, trainings[0].parameters, result.evidence)
    return certify_stuck(WORKLOAD, pack, np.ones(len(trainings)), result, verdicts)


FULL: dict[str, Value] = {
    "n_categories": 4,
    "n_positions": 6,
    "expectation": "fixed_sample",
    "batch_size": 64,
    "optimizer": "lbfgs",
    "learning_rate": 1.0,
    "n_steps": 30,
}
ZERO: dict[str, Value] = {"init_sigma": 1e-4, "learning_rate": 1e-3, "n_steps": 300}


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["positions_only", "categories_only"])
def test_a_zero_of_a_reduced_system_has_a_way_down(variant: str) -> None:
    assert _certified(*_pack(4, variant=variant, **ZERO)) == [Certificate("negative_curvature", agrees=True)] * 4


def test_a_full_model_on_fresh_texts_has_no_certificate() -> None:
    pack, _ = _pack(1, variant="solution_3", **FULL | {"expectation": "sampled", "optimizer": "sgd", "n_steps": 2})
    tested = WORKLOAD.certify(*pack.final_state(np.arange(1)), np.array(["degenerate_zero"]), np.array(["mean"]))
    assert tested == [None]


@pytest.mark.scale
@pytest.mark.slow
def test_the_valley_at_infinity_catches_opposed_starts_which_solve_once_taken_out_of_it() -> None:
    pack, trainings = _pack(8, init_sigma=0.1, learning_rate=1e-2, n_steps=2500)
    result = pack.result()
    verdicts = judged(WORKLOAD, trainings[0].parameters, result.evidence)
    ends = [(verdicts.outcome[at, last], verdicts.detail[at, last]) for at, last in enumerate(result.last_probe)]
    assert ("runaway", "valley") in ends
    assert ("solved", "") in ends
    found = _certified(pack, trainings)
    resets = [each for each in found if each is not None and each.test == "valley_reset"]
    assert len(resets) >= 2
    assert all(each.agrees for each in resets)


@pytest.mark.scale
def test_a_kick_leads_out_where_curvature_is_too_small_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_SMALL_SHARE", 1.0)
    kicked = _certified(*_pack(3, variant="solution_3", init_sigma=1e-3, **FULL))
    found = [each for each in kicked if each is not None]
    assert {each.test for each in found} == {"kick"}
    assert sum(each.agrees for each in found) >= 2
    assert all(0 < each.measured["freeing_kick"] <= 0.1 for each in found if each.agrees)
