"""The study: every sampler, and the same configurations whether or not a sweep was interrupted."""

from pathlib import Path
from typing import get_args

import pytest
from optuna.trial import TrialState

from attnsweep.orchestrator.running.study import Asked, Configuration, Study, read_trials
from attnsweep.orchestrator.running.study_storage import check_storage
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Categorical, Conditional, Float, Int, Sweep
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.search_spaces.sweep import Sampler
from attnsweep.workloads.errors import SpecError
from tests.refusals import refused

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
    with refused("storage", SpecError) as raised:
        check_storage(spec)
    assert "secret" not in str(raised.value)


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
