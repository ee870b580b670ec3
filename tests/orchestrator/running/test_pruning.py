"""Pruning: when a trial is decided, what its trainings become, and what is left after a kill. No Ray, no MLflow."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.schema import schemas_of
from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.study import Study, open_study, read_trials
from attnsweep.orchestrator.running.trials import Pruning
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.local_pool import LocalPool
from attnsweep.orchestrator.training.messages import PackOrder, Probed, RunContext
from attnsweep.orchestrator.training.tasks import tasks_of
from attnsweep.search_spaces import LossQuantile, Pruner, Sweep
from attnsweep.workloads.category_pairs import CategoryPairs
from tests.orchestrator.small_sweep import small_sweep
from tests.orchestrator.trained_sweep import trained_sweep

WORKLOAD = CategoryPairs()
LIMIT = 0.97
"""Of trainings of 40 steps, some trials of the sweep below stay above it, others fall below."""


def _spec(**changes: Any) -> Sweep:
    pruner = Pruner("threshold", upper=1.0, n_warmup_steps=4)
    return small_sweep("s", replicates=2, sampler="random", objective=LossQuantile(), pruner=pruner).but(**changes)


@pytest.fixture
def directory(tmp_path: Path) -> SweepDirectory:
    return SweepDirectory.create(tmp_path / "s", _spec(), {"n_categories": 3, "n_positions": 4})


def _pack(directory: SweepDirectory, study: Study, *lanes: tuple[int, int]) -> PackOrder:
    """A pack of these (trial, replicate)."""
    tasks = [
        task
        for trial, replicate in lanes
        for task in tasks_of(directory, WORKLOAD.parameters, trial, study.values(trial), [replicate])
    ]
    return PackOrder("-".join(f"{trial}.{replicate}" for trial, replicate in lanes), tasks)


def _probed(step: int, *losses: float, ended: int = 0) -> Probed:
    return Probed(step, [("plateau", False, loss) for loss in losses], range(ended, len(losses)))


def _begun(directory: SweepDirectory, n_trials: int) -> tuple[Study, Pruning]:
    study = open_study(directory)
    for _ in range(n_trials - study.n_asked):
        study.ask()
    return study, Pruning(directory.spec, study)


def test_a_trial_in_one_pack_is_decided_by_the_median_of_its_losses_at_each_probe(directory: SweepDirectory) -> None:
    study, pruning = _begun(directory, 2)
    order = pruning.prepared(_pack(directory, study, (0, 0), (0, 1), (1, 0), (1, 1)))
    assert order.waits
    assert pruning.answer(order, _probed(2, 5.0, 5.0, 5.0, 5.0)) == []
    # Of two losses the lower one is the median.
    assert pruning.answer(order, _probed(4, 5.0, 0.9, 5.0, 1.5)) == [2, 3]
    assert study.pruned == {1: 4}
    assert pruning.answer(order, _probed(8, 0.8, 0.9, 5.0, 1.5, ended=4)) == [2, 3]
    study.save()
    values = [trial.intermediate_values for trial in read_trials(directory)]
    assert values == [{2: 5.0, 4: 0.9, 8: 0.8}, {2: 5.0, 4: 1.5}]


def test_a_trial_in_two_packs_is_decided_once_both_have_reached_a_step(directory: SweepDirectory) -> None:
    study, pruning = _begun(directory, 1)
    ahead, behind = (pruning.prepared(_pack(directory, study, (0, each))) for each in (0, 1))
    assert [pruning.answer(ahead, _probed(step, 5.0)) for step in (2, 4, 8)] == [[], [], []]
    assert pruning.answer(behind, _probed(2, 6.0)) == []
    assert pruning.answer(behind, _probed(4, 6.0)) == [0]
    assert study.pruned == {0: 4}
    # The other training has gone further: it ends at its next probe.
    assert pruning.answer(ahead, _probed(11, 5.0)) == [0]
    # Trained from its start again, it ends where the trial was decided.
    assert pruning.answer(pruning.prepared(ahead), _probed(2, 5.0)) == []
    assert [task.pruned_step for task in pruning.prepared(ahead).tasks] == [4]


def test_a_decision_outlives_the_driver_and_a_step_is_decided_once(directory: SweepDirectory) -> None:
    study, pruning = _begun(directory, 2)
    order = pruning.prepared(_pack(directory, study, (0, 0), (0, 1), (1, 0), (1, 1)))
    pruning.answer(order, _probed(4, 0.9, 0.9, 5.0, 5.0))
    study.save()
    study, pruning = _begun(directory, 2)
    again = pruning.prepared(order)
    assert [task.pruned_step for task in again.tasks] == [None, None, 4, 4]
    # Another value of the same step, as on another machine, changes nothing.
    assert pruning.answer(again, _probed(4, 5.0, 5.0, 5.0, 5.0)) == [2, 3]
    assert pruning.answer(again, _probed(8, 5.0, 5.0, 5.0, 5.0)) == [0, 1, 2, 3]


SPEC = (
    _spec(trials=8, seed=3)
    .fix({"n_steps": 40, "n_categories": 3, "n_positions": 4, "learning_rate": 0.1})
    .but(pruner=Pruner("threshold", upper=LIMIT, n_warmup_steps=19))
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    return trained_sweep(tmp_path_factory.mktemp("pruning") / "s", SPEC, pack_size=5)


def _ends(directory: SweepDirectory) -> list[tuple[Any, ...]]:
    names = ("trial", "replicate", "training_id", "outcome", "n_steps", "pruned_step", "eval_loss")
    return sorted(tuple(row[name] for name in names) for row in Ledger(directory.place).trainings().to_pylist())


def _states(directory: SweepDirectory) -> list[TrialState]:
    return [trial.state for trial in read_trials(directory)]


@pytest.mark.slow
def test_the_trainings_of_a_pruned_trial_are_pruned_and_no_others(trained: SweepDirectory) -> None:
    pruned = {trial.number for trial in read_trials(trained) if trial.state == TrialState.PRUNED}
    assert 0 < len(pruned) < 8
    rows = Ledger(trained.place).trainings().to_pylist()
    assert len(rows) == 16
    for row in rows:
        is_pruned = row["trial"] in pruned
        assert (row["outcome"] == "pruned", row["pruned_step"]) == (is_pruned, 19 if is_pruned else None)
        assert not is_pruned or (row["n_steps"], row["onset_step"], row["stuck"]) == (19, None, False)
    for trial in read_trials(trained):
        if trial.number in pruned:
            assert trial.value == trial.intermediate_values[19] > LIMIT
            assert trial.last_step == 19
        else:
            assert trial.last_step is not None
            assert trial.value == trial.intermediate_values[trial.last_step]
            assert trial.intermediate_values[19] <= LIMIT
    # Packs of five hold two whole trials.
    assert len({row["pack"] for row in rows}) == 4


def _continued(directory: SweepDirectory) -> None:
    with closing(LedgerWriter(directory.place, schemas_of(WORKLOAD), directory.spec_sha256)) as writer:
        study, pool = open_study(directory), LocalPool(WORKLOAD, RunContext(directory.sweep, directory.environment))
        loop = SweepLoop(directory, WORKLOAD, study, writer, pool, pack_size=5)
        loop.resume(Ledger(directory.place).trainings())
        assert loop.run(lambda: False)
        study.save()


@pytest.mark.slow
def test_a_resumed_sweep_ends_as_an_undisturbed_one(trained: SweepDirectory, tmp_path: Path) -> None:
    stopped = trained_sweep(tmp_path / "stopped", SPEC, pack_size=5, n_commits=2)
    assert 0 < len(_ends(stopped)) < 16
    _continued(stopped)
    assert _ends(stopped) == _ends(trained)
    assert _states(stopped) == _states(trained)
