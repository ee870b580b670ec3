"""Additional probes change no bit of a training; dense probes are at every step, or at about 2,000 steps."""

import numpy as np
import pytest
import torch

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training, Verdicts
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.schedule import dense_probe_steps
from tests.workloads.engine.test_checkpoint import _assert_same_end, _case, _ended, _undisturbed


@pytest.mark.sample("pairs, lbfgs-1", "pairs, adam-1000")
@pytest.mark.slow
@pytest.mark.parametrize("slice_evaluations", [1, 1_000])
@pytest.mark.parametrize(
    "name", ["pairs, sgd", "pairs, adam", "pairs, adamw", "pairs, lbfgs", "pairs, sampled", "strings, sgd"]
)
def test_a_training_looked_at_at_every_step_ends_as_one_that_is_not(name: str, slice_evaluations: int) -> None:
    undisturbed, n_evaluations = _undisturbed(name)
    workload, trainings = _case(name)
    shared = trainings[0].parameters
    pack = Pack(workload, trainings, extra_probe_steps=dense_probe_steps(shared.n_steps))
    n_slices = 0
    while not pack.advance(slice_evaluations):
        n_slices += 1
    assert n_slices == (n_evaluations if slice_evaluations == 1 else 0)
    dense, own_steps = pack.result(), workload.probe_steps(shared)
    assert dense.evidence.steps.tolist() == list(range(shared.n_steps + 1))
    assert all(np.isin(dense.last_probe, own_steps))
    _assert_same_end(pack, undisturbed, own_steps)


def test_who_is_solved_is_judged_by_the_own_probes_alone() -> None:
    class Patient(CategoryPairs):
        """A workload that labels a training as solved at its thirteenth probe."""

        def judge(self, parameters, evidence):  # type: ignore[no-untyped-def]
            del parameters
            outcome = np.full(evidence.metrics["loss"].shape, "plateau")
            outcome[:, 12:] = "solved"
            return Verdicts(outcome=outcome, detail=np.full(outcome.shape, ""))

    workload, (_, trainings) = Patient(), _case("pairs, adam")
    undisturbed = _ended(Pack(workload, trainings))
    dense = _ended(Pack(workload, trainings, extra_probe_steps=range(121)))
    own_steps = workload.probe_steps(trainings[0].parameters)
    assert undisturbed.result().n_steps.max() == own_steps[12]
    _assert_same_end(dense, undisturbed, own_steps)


def test_a_loss_below_the_least_ends_no_training_between_its_own_probes() -> None:
    class Dips(CategoryPairs):
        """A workload whose losses are negative at step 37 alone."""

        def fresh_eval_batch(self, lanes, step):  # type: ignore[no-untyped-def]
            return {"dip": torch.full((len(lanes.trainings),), 1e3 if step == 37 else 0.0, dtype=lanes.dtype)}

        def eval_loss(self, module, batch):  # type: ignore[no-untyped-def]
            return super().eval_loss(module, {}) - batch.get("dip", 0.0)

    workload, (_, trainings) = Dips(), _case("pairs, adam")
    dense = _ended(Pack(workload, trainings, extra_probe_steps=[37])).result()
    at_dip = dense.evidence.metrics["eval_loss"][:, dense.evidence.steps.tolist().index(37)]
    assert np.nanmax(at_dip) < -900
    assert 37 not in dense.diverged_step


@pytest.mark.slow
def test_what_is_seen_between_is_what_a_shorter_training_ends_with() -> None:
    workload, trainings = _case("pairs, adam")
    dense = _ended(Pack(workload, trainings, extra_probe_steps=[37])).result()
    values = trainings[0].parameters.values() | {"n_steps": 37}
    shorter = _ended(Pack(workload, [Training(type(trainings[0].parameters).resolve(values), 0)])).result()
    assert 37 not in workload.probe_steps(trainings[0].parameters)
    place = dense.evidence.steps.tolist().index(37)
    for name, table in shorter.evidence.metrics.items():
        assert table[0, -1] == dense.evidence.metrics[name][0, place], name


@pytest.mark.parametrize("n_steps", [0, 1, 7, 2_000])
def test_short_trainings_are_looked_at_at_every_step(n_steps: int) -> None:
    assert dense_probe_steps(n_steps) == tuple(range(n_steps + 1))


@pytest.mark.parametrize("n_steps", [2_001, 12_345, 1_000_000])
def test_long_trainings_are_looked_at_at_even_distances(n_steps: int) -> None:
    steps = np.array(dense_probe_steps(n_steps))
    assert (steps[0], steps[-1], steps.size) == (0, n_steps, 2_001)
    assert np.ptp(np.diff(steps)) <= 1
