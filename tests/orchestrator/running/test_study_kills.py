"""A study whose driver is killed at any byte of its journal: configurations stay the same and inside the space."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import optuna
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from attnsweep.orchestrator.running import study as study_module
from attnsweep.orchestrator.running.study import Configuration, Study, read_trials
from attnsweep.orchestrator.running.study_storage import check_storage
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from attnsweep.search_spaces import Categorical, Conditional, Float, Int, LossQuantile, Sweep
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.search_spaces.pruners import MedianPruner
from attnsweep.search_spaces.suggestion import undrawn
from tests.orchestrator.small_sweep import folder_of

SPACE: dict[str, Dimension] = {
    "init_sigma": Float(low=1e-4, high=1.0, log=True, points=4),
    "optimizer": Categorical(choices=("sgd", "adam")),
    "n_positions": Int(low=4, high=20, points=3),
}
CONDITIONAL: dict[str, Dimension] = {
    "learning_rate": Conditional(on="optimizer", among=("adam",), then=Float(low=1e-4, high=1e-2), otherwise=0.5),
    "n_steps": Conditional(on="optimizer", among=("adam",), then=Int(low=10, high=1000)),
}
N_TRIALS = 8


def _spec(sampler: str, **changes: Any) -> Sweep:
    if sampler == "qmc, pruned":
        # Optuna itself draws what a pruner compares: an ask is several entries.
        sampler, changes = "qmc", changes | {"pruner": MedianPruner(), "objective": LossQuantile()}
    space = SPACE if sampler in ("grid", "qmc") else SPACE | CONDITIONAL
    spec = Sweep(name="s", workload="category_pairs", space=space, trials=N_TRIALS, seed=3)
    return spec.but(sampler=sampler, **changes)


def _directory(path: Path, sampler: str, **changes: Any) -> SweepDirectory:
    return SweepDirectory.create(path, _spec(sampler, **changes), {})


@cache
def _undisturbed(sampler: str, *, is_earlier: bool = False) -> tuple[SweepDirectory, list[Configuration], bytes]:
    """A study as it goes, saved after one, two and three trials: its configurations and its journal.

    An earlier attnsweep had Optuna write all entries.
    """
    with TemporaryDirectory() as path:
        directory = _directory(Path(path) / "s", sampler)
        study = Study(directory)
        if is_earlier:
            study._entries = None
        asked = []
        for number in range(N_TRIALS):
            asked.append(study.ask())
            if number in (0, 2, 5):
                study.tell(number, 0.25)
                study.save()
        study.save()
        return directory, asked, (Path(path) / "s" / STUDY_FILE).read_bytes()


def _resumed(directory: SweepDirectory, journal: bytes, path: Path) -> list[Configuration]:
    """All configurations of a study that goes on from this journal; and again as the next one finds them."""
    directory = directory.but(place=LocalFolder(path))
    (path / STUDY_FILE).write_bytes(journal)
    study = Study(directory)
    configurations = [study.configuration(each.trial) for each in study.asked()]
    configurations += [study.ask() for _ in range(study.n_left)]
    study.save()
    assert all(not undrawn(directory.spec, trial.params) for trial in read_trials(directory))
    assert [Study(directory).configuration(number) for number in range(N_TRIALS)] == configurations
    return configurations


@pytest.mark.slow
@settings(max_examples=20)
@example("qmc, pruned", 0.5)
@given(st.sampled_from(["random", "qmc", "grid", "qmc, pruned"]), st.floats(0, 1))
def test_whatever_of_the_journal_reached_the_disk_the_configurations_are_the_same(sampler: str, share: float) -> None:
    directory, asked, journal = _undisturbed(sampler)
    with TemporaryDirectory() as path:
        assert _resumed(directory, journal[: round(share * len(journal))], Path(path)) == asked


@pytest.mark.slow
@pytest.mark.parametrize("n_written", [0, 2, 4])
def test_an_ask_in_a_storage_of_the_users_that_was_killed_is_completed(
    n_written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = _undisturbed("random")[1]
    directory = _directory(tmp_path / "s", "random", storage=f"sqlite:///{tmp_path}/study.db")
    check_storage(directory.spec)
    study = Study(directory)
    adam = next(each.trial for each in undisturbed if each.values["optimizer"] == "adam")
    asked = [study.ask() for _ in range(adam)]
    with monkeypatch.context() as patch:
        _interrupt_after(n_written, optuna.Trial, "_suggest", patch)
        with pytest.raises(KeyboardInterrupt):
            study.ask()
    again = Study(directory)
    completed = [again.configuration(each.trial) for each in again.asked()]
    assert completed[: len(asked)] == asked
    assert completed + [again.ask() for _ in range(again.n_left)] == undisturbed


def _interrupt_after(n_calls: int, owner: Any, name: str, patch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = getattr(owner, name)
    calls = iter(range(n_calls))

    def call(*arguments: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return real(*arguments)

    patch.setattr(owner, name, call)


@pytest.mark.parametrize("step", ["ask", "suggest"])
def test_an_ask_that_ctrl_c_ends_is_not_saved(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = _undisturbed("tpe")[1]
    directory = _directory(tmp_path / "s", "tpe")
    study = Study(directory)
    first = study.ask()
    with monkeypatch.context() as patch:
        if step == "ask":
            _interrupt_after(1, optuna.Trial, "_suggest", patch)
        else:
            _interrupt_after(0, study_module, "suggest", patch)
        with pytest.raises(KeyboardInterrupt):
            study.ask()
    study.save()
    again = Study(directory)
    assert [again.configuration(each.trial) for each in again.asked()] == [first] == undisturbed[:1]
    assert [again.ask() for _ in range(again.n_left)] == undisturbed[1:]


def _beside(directory: SweepDirectory) -> optuna.Study:
    """The study as another program opens it while the sweep runs."""
    backend = JournalFileBackend(str(folder_of(directory) / STUDY_FILE))
    return optuna.load_study(study_name=directory.sweep, storage=JournalStorage(backend))


def test_notes_of_a_dashboard_stand_beside_what_the_sweep_appends(tmp_path: Path) -> None:
    directory = _directory(tmp_path / "s", "random")
    study = Study(directory)
    asked = [study.ask()]
    study.save()
    asked.append(study.ask())
    other = _beside(directory)
    other.set_user_attr("note", "promising")
    other._storage.set_trial_system_attr(0, "dashboard:note", "this one")
    study.save()
    study.tell(1, 0.5)
    study.save()
    assert other.user_attrs["note"] == "promising"
    assert [trial.state for trial in other.trials] == [TrialState.RUNNING, TrialState.COMPLETE]
    again = Study(directory)
    assert [again.configuration(number) for number in range(2)] == asked


def _ask(journal: Path, other: optuna.Study) -> None:
    other.ask()


def _tell(journal: Path, other: optuna.Study) -> None:
    other.tell(0, 0.5)


def _cut(journal: Path, other: optuna.Study) -> None:
    journal.write_bytes(journal.read_bytes()[:-10])


def _scribble(journal: Path, other: optuna.Study) -> None:
    with journal.open("a") as file:
        file.write("not an entry\n")


@pytest.mark.parametrize("meddle", [_ask, _tell, _cut, _scribble])
def test_nothing_is_added_to_a_journal_that_another_program_changes(
    meddle: Callable[[Path, optuna.Study], None], tmp_path: Path
) -> None:
    """A trial added by another program would take the number of ours."""
    directory = _directory(tmp_path / "s", "random")
    study = Study(directory)
    study.ask()
    study.save()
    study.ask()
    journal = tmp_path / "s" / STUDY_FILE
    meddle(journal, _beside(directory))
    held = journal.read_bytes()
    expected = (
        f"{journal}: got 'a change by another program', expected a journal that only this "
        "sweep writes while it runs; stop that program, undo its change, and continue with: attnsweep resume DIR"
    )
    with pytest.raises(StoreError) as raised:
        study.save()
    assert str(raised.value) == expected
    study.save()
    assert journal.read_bytes() == held
