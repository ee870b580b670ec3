"""The study: every sampler, and the same configurations whether or not a sweep was interrupted."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from attnsweep.orchestrator.ledger.trial import Told
from attnsweep.orchestrator.running.study import Study, check_storage, has_study, open_study, read_trials
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from attnsweep.search_spaces import Categorical, Conditional, Float, Int, LossQuantile, Pruner, Sweep
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.search_spaces.sweep import Sampler
from attnsweep.workloads.category_pairs import CategoryPairsParameters
from attnsweep.workloads.errors import SpecError, UserError
from tests.orchestrator.storage.object_store import new_prefix, object_store
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
PRUNED = {"sampler": "qmc", "pruner": Pruner("median"), "objective": LossQuantile()}
N_TRIALS = {"nsga2": 56, "tpe": 16, "boundary": 13}


def _directory(path: PlaceName, sampler: str, **changes: Any) -> SweepDirectory:
    n_trials = N_TRIALS.get(sampler, 12)
    spec = Sweep(name="s", workload="category_pairs", space=SPACE, trials=n_trials, seed=5)
    more = PRUNED if sampler == "pruned" else {"sampler": sampler}
    return SweepDirectory.create(path, spec.but(**more, **changes), {})


def _run(study: Study, n_trials: int, known: int = 0) -> list[tuple[int, Mapping[str, Any]]]:
    """Draws and tells trials, group by group, after those that an earlier run has drawn and not told."""
    untold = [trial for trial in study.restored(range(known), CategoryPairsParameters) if not study.is_told(trial)]
    asked: list[tuple[int, Mapping[str, Any]]] = []
    while n_trials or untold:
        for _ in range(min(study.n_to_draw(1, untold), n_trials)):
            trial = study.ask()
            asked.append((trial, study.values(trial)))
            untold.append(trial)
            n_trials -= 1
        study.save()
        for trial in untold:
            study.tell(trial, Told((float(study.values(trial)["init_sigma"]),), {}))  # type: ignore[arg-type]
        untold = []
    study.save()
    return asked


@pytest.fixture(params=["directory", "object store", "database"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[PlaceName, dict[str, Any]]]:
    if request.param == "object store":
        with object_store():
            yield new_prefix(), {}
        return
    storage = {"storage": f"sqlite:///{tmp_path}/study.db"} if request.param == "database" else {}
    yield tmp_path / "b", storage


@pytest.mark.parametrize("sampler", [*get_args(Sampler), "pruned"])
def test_an_interrupted_study_goes_on_as_if_it_had_not_been(
    sampler: str, place: tuple[PlaceName, dict[str, Any]], tmp_path: Path
) -> None:
    n_trials = N_TRIALS.get(sampler, 12)
    undisturbed = _run(open_study(_directory(tmp_path / "a", sampler)), n_trials)
    directory = _directory(place[0], sampler, **place[1])
    check_storage(directory.spec)
    # A sweep draws a group as a whole; this is where one begins.
    first = _run(open_study(directory), n_trials - 4)
    assert first + _run(resumed := open_study(directory), 4, known=n_trials - 4) == undisturbed
    assert (resumed.n_left, [trial for trial, _ in undisturbed]) == (0, [*range(n_trials)])
    assert {trial.state for trial in _trials(directory)} <= {TrialState.COMPLETE}


def _trials(directory: SweepDirectory) -> list[optuna.trial.FrozenTrial]:
    return read_trials(directory) if has_study(directory.spec) else []


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_trial_that_was_not_told_comes_back_with_its_values(sampler: str, tmp_path: Path) -> None:
    directory = _directory(tmp_path / "a", sampler, space=SPACE | CONDITIONAL)
    study = open_study(directory)
    asked = [study.ask() for _ in range(8)]
    values = [study.values(trial) for trial in asked]
    assert {each["optimizer"] for each in values} == {"sgd", "adam"}
    assert all((each["learning_rate"] == 0.5) == (each["optimizer"] == "sgd") for each in values)
    again = open_study(directory)
    assert [*again.restored([7], CategoryPairsParameters)] == asked
    assert [again.values(trial) for trial in asked] == values
    assert [again.is_told(trial) for trial in asked] == [sampler == "random"] * 8


def _beside(directory: SweepDirectory) -> optuna.Study:
    """The study as another program opens it while the sweep runs."""
    backend = JournalFileBackend(str(directory.place / STUDY_FILE))
    return optuna.load_study(study_name=directory.sweep, storage=JournalStorage(backend))


def test_a_trial_that_another_program_adds_stops_the_sweep(tmp_path: Path) -> None:
    directory = _directory(tmp_path / "s", "tpe")
    study = open_study(directory)
    study.ask()
    _beside(directory).ask()
    with refused("study.journal", StoreError):
        study.ask()
    with refused("study.journal", StoreError):
        open_study(directory)


def test_a_journal_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    directory = _directory(tmp_path / "s", "tpe")
    _run(open_study(directory), 3)
    journal = tmp_path / "s" / STUDY_FILE
    journal.write_bytes(b"x" + journal.read_bytes())
    with refused("study.journal", UserError):
        open_study(directory)


def test_a_storage_that_cannot_be_opened_is_named_before_anything_is_written(tmp_path: Path) -> None:
    spec = _directory(tmp_path / "a", "random").spec.but(storage="nonsense://user:secret@x")
    with refused("storage", SpecError) as raised:
        check_storage(spec)
    assert "secret" not in str(raised.value)
