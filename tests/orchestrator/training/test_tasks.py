"""Tasks: which trainings a trial has, and what each is known by."""

from pathlib import Path

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.tasks import tasks_of, training_id, training_seed
from attnsweep.search_spaces import Categorical, Sweep
from attnsweep.workloads.category_pairs import CategoryPairsParameters
from attnsweep.workloads.parameters import Value

SWEEP = Sweep(name="s", workload="category_pairs", space={}, trials=100)


def test_a_training_is_known_by_what_it_is() -> None:
    parameters = CategoryPairsParameters(init_sigma=0.1)
    assert training_id("category_pairs", parameters, 7) == "e8bd1b970e2c132c6e8c"
    others = [
        training_id("other", parameters, 7),
        training_id("category_pairs", parameters, 8),
        training_id("category_pairs", CategoryPairsParameters(init_sigma=0.1 + 1e-16), 7),
        training_id("category_pairs", CategoryPairsParameters(init_sigma=0.2), 7),
    ]
    assert "e8bd1b970e2c132c6e8c" not in others
    assert len(set(others)) == len(others)


def _seeds(spec: Sweep, trial: int, **values: Value) -> list[int]:
    directory = SweepDirectory(
        place=Path("s"), sweep="s", given=spec, spec_sha256=spec.sha256(), defaults={}, provenance={}
    )
    return [each.training.seed for each in tasks_of(directory, CategoryPairsParameters, trial, values, range(3))]


def test_trials_of_a_grid_that_differ_in_the_intervention_alone_have_the_same_seeds() -> None:
    space = {"init_sigma": Categorical((0.1, 0.2)), "intervention": Categorical((None, "kick 0.1 at 3"))}
    grid = SWEEP.but(space=space, sampler="grid", trials=4)
    plain = _seeds(grid, 0, init_sigma=0.1, intervention=None)
    assert plain == _seeds(grid, 3, init_sigma=0.1, intervention="kick 0.1 at 3")
    assert not set(plain) & set(_seeds(grid, 1, init_sigma=0.2, intervention=None))
    # Other samplers may draw a trial twice, and other sweeps have no pairs.
    assert _seeds(SWEEP.but(space=space), 2, intervention=None) == [
        training_seed(SWEEP.seed, 2, each) for each in range(3)
    ]
