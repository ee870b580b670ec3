"""The study: every sampler, and the same configurations whether or not a sweep was interrupted."""

from pathlib import Path
from typing import get_args

import pytest
from optuna.trial import TrialState

from attnsweep.orchestrator.running.study import Asked, Configuration, Study, read_trials
from attnsweep.orchestrator.running.study_storage import check_storage
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Categorical, Conditional, Float, Int, Sequential, Sweep
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.search_spaces.measured import N_JUDGED
from attnsweep.search_spaces.sweep import Sampler
from attnsweep.workloads.errors import SpecError

SPACE: dict[str, Dimension] = {
    "n_positions": Int(low=4, high=20, points=3),
    "init_sigma": Float(low=1e-4, high=1.0, log=True, points=4),
    "n_steps": 10,
}


CONDITIONAL: dict[str, Dimension] = {
    "optimizer": Categorical(choices=("sgd", "adam")),
    "learning_rate": Conditional(on="optimizer", among=("adam",), then=Float(low=1e-4, high=1e-2), otherwise=0.5),
}


def _directory(path: Path, sampler: Sampler, **space: Dimension) -> SweepDirectory:
    spec = Sweep(name="s", workload="category_pairs", space={**SPACE, **space}, sampler=sampler, trials=12, seed=5)
    return SweepDirectory.create(path, spec, {})


def _run(study: Study, n_trials: int) -> list[Configuration]:
    asked = []
    for _ in range(n_trials):
        configuration = study.ask()
        asked.append(configuration)
        study.tell(configuration.trial, float(configuration.values["init_sigma"]))  # type: ignore[arg-type]
    study.save()
    return asked


@pytest.mark.parametrize("sampler", get_args(Sampler))
def test_an_interrupted_study_goes_on_as_if_it_had_not_been(sampler: Sampler, tmp_path: Path) -> None:
    undisturbed = _run(Study(_directory(tmp_path / "a", sampler)), 12)
    directory = _directory(tmp_path / "b", sampler)
    first = _run(Study(directory), 5)
    resumed = Study(directory)
    assert resumed.n_left == 7
    assert first + _run(resumed, 7) == undisturbed
    assert [each.trial for each in undisturbed] == list(range(12))


def test_the_grid_visits_every_point_once(tmp_path: Path) -> None:
    asked = _run(Study(_directory(tmp_path / "a", "grid")), 12)
    points = {(each.values["n_positions"], each.values["init_sigma"]) for each in asked}
    assert len(points) == 12
    assert {position for position, _ in points} == {4, 12, 20}


def test_a_trial_that_was_not_told_comes_back_with_its_values(tmp_path: Path) -> None:
    directory = _directory(tmp_path / "a", "random", **CONDITIONAL)
    study = Study(directory)
    asked = [study.ask() for _ in range(8)]
    assert {each.values["optimizer"] for each in asked} == {"sgd", "adam"}
    for each in asked:
        rate = each.values["learning_rate"]
        assert (rate == 0.5) == (each.values["optimizer"] == "sgd")
    study.save()
    again = Study(directory)
    assert again.asked() == [Asked(each.trial, is_told=False) for each in asked]
    assert [again.configuration(each.trial) for each in asked] == asked


def test_the_boundary_is_looked_for_beside_conditional_parameters(tmp_path: Path) -> None:
    asked = _run(Study(_directory(tmp_path / "a", "boundary", **CONDITIONAL)), 14)
    rates = {each.values["learning_rate"] for each in asked if each.values["optimizer"] == "adam"}
    assert len(rates) > 3
    assert all(1e-4 <= rate <= 1e-2 for rate in rates)  # type: ignore[operator]


def test_the_boundary_sampler_is_told_how_many_trainings_a_trial_had(tmp_path: Path) -> None:
    cases: tuple[tuple[Sampler, dict[str, int]], ...] = (("boundary", {N_JUDGED: 24}), ("random", {}))
    for sampler, expected in cases:
        spec = _directory(tmp_path / f"{sampler}-spec", sampler).spec.but(replicates=Sequential(at_most=24))
        study = Study(SweepDirectory.create(tmp_path / sampler, spec, {}))
        study.tell(study.ask().trial, 0.5, 24)
        study.save()
        assert read_trials(study._directory)[0].user_attrs == expected


def test_another_seed_draws_other_values(tmp_path: Path) -> None:
    one = SweepDirectory.create(tmp_path / "a", _directory(tmp_path / "x", "random").spec, {})
    other = SweepDirectory.create(tmp_path / "b", one.spec.but(seed=6), {})
    assert Study(one).ask().values != Study(other).ask().values


def test_a_refused_trial_is_remembered_and_not_asked_again(tmp_path: Path) -> None:
    directory = _directory(tmp_path / "a", "random")
    study = Study(directory)
    study.refuse(study.ask().trial, "expectation: got 'population'")
    study.save()
    reopened = Study(directory)
    assert reopened.refused == {0: "expectation: got 'population'"}
    assert reopened.asked() == []
    assert reopened.n_left == 11


def test_a_refused_trial_that_a_kill_kept_from_being_told_is_told_when_the_study_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = _directory(tmp_path / "a", "random")
    with monkeypatch.context() as patch:
        patch.setattr(Study, "tell", lambda *_: None)
        study = Study(directory)
        study.refuse(study.ask().trial, "no")
        study.save()
    assert [trial.state for trial in read_trials(directory)] == [TrialState.RUNNING]
    assert Study(directory).refused == {0: "no"}
    assert [trial.state for trial in read_trials(directory)] == [TrialState.FAIL]
    Study(directory)


def test_a_storage_that_cannot_be_opened_is_named_before_anything_is_written(tmp_path: Path) -> None:
    spec = _directory(tmp_path / "a", "random").spec.but(storage="nonsense://user:secret@x")
    with pytest.raises(
        SpecError, match=r"storage: got 'nonsense://\.\.\.@x', expected the URL of an Optuna storage"
    ) as raised:
        check_storage(spec)
    assert "secret" not in str(raised.value)


def test_a_database_that_another_folder_would_not_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = _directory(tmp_path / "a", "random").spec.but(storage="sqlite:///study.db")
    with pytest.raises(
        SpecError, match=f"expected the absolute path of a database.*set storage=sqlite:///{tmp_path}/study.db"
    ):
        check_storage(spec)
    assert not (tmp_path / "study.db").exists()


@pytest.mark.parametrize("sampler", ["random", "qmc"])
def test_no_configuration_is_drawn_again_because_all_before_it_were_refused_or_failed(
    sampler: Sampler, tmp_path: Path
) -> None:
    study = Study(_directory(tmp_path / "s", sampler))
    drawn = set()
    for number in range(6):
        asked = study.ask()
        drawn.add(asked.values["init_sigma"])
        if number % 2:
            study.refuse(asked.trial, "too large")
        else:
            study.tell(asked.trial, None)
    assert len(drawn) == 6


def test_a_quasi_random_sweep_draws_conditional_parameters_anew_for_each_trial(tmp_path: Path) -> None:
    momentum = Conditional(on="optimizer", among=("sgd",), then=Float(low=0.0, high=0.9))
    study = Study(_directory(tmp_path / "s", "qmc", optimizer=Categorical(choices=("sgd", "adam")), momentum=momentum))
    drawn = [each.values["momentum"] for each in _run(study, 12) if each.values["optimizer"] == "sgd"]
    assert len(drawn) > 3
    assert len(set(drawn)) == len(drawn)
