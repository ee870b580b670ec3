"""The study in an object store: after an interruption or a kill it continues as on a disk."""

from pathlib import Path

import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from attnsweep.orchestrator.running import study_storage
from attnsweep.orchestrator.running.study import Asked, Configuration, Study
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.s3 import ObjectPrefix
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from attnsweep.search_spaces import Float, Sweep
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.search_spaces.sweep import Sampler
from tests.orchestrator.storage.object_store import new_prefix, object_names

pytestmark = pytest.mark.usefixtures("s3")


def _directory(path: PlaceName, sampler: Sampler = "random") -> SweepDirectory:
    space: dict[str, Dimension] = {"init_sigma": Float(low=1e-4, high=1.0, log=True), "n_steps": 10}
    spec = Sweep(name="s", workload="category_pairs", space=space, sampler=sampler, trials=16, seed=5)
    return SweepDirectory.create(path, spec, {})


def _run(study: Study, n_trials: int) -> list[Configuration]:
    asked = []
    for _ in range(n_trials):
        asked.append(study.ask())
        study.tell(asked[-1].trial, float(asked[-1].values["init_sigma"]))  # type: ignore[arg-type]
        study.save()
    return asked


def _pieces(prefix: ObjectPrefix) -> list[str]:
    return sorted(name for name in object_names(prefix) if name.startswith(STUDY_FILE))


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_it_goes_on_as_if_it_had_not_been_interrupted(sampler: Sampler, tmp_path: Path) -> None:
    undisturbed = _run(Study(_directory(tmp_path / "s", sampler)), 16)
    directory = _directory(new_prefix(), sampler)
    first = _run(Study(directory), 11)
    assert first + _run(Study(directory), 5) == undisturbed


def test_what_was_not_saved_is_asked_again(tmp_path: Path) -> None:
    directory = _directory(new_prefix())
    study = Study(directory)
    known = study.ask()
    study.save()
    study.tell(known.trial, 0.5)
    lost = study.ask()
    resumed = Study(directory)
    assert resumed.asked() == [Asked(known.trial, is_told=False)]
    assert resumed.configuration(known.trial) == known
    assert resumed.ask() == lost


def test_a_refused_trial_is_remembered(tmp_path: Path) -> None:
    directory = _directory(new_prefix())
    study = Study(directory)
    study.refuse(study.ask().trial, "no")
    study.save()
    assert Study(directory).refused == {0: "no"}


def test_its_pieces_are_optunas_file_and_are_joined_when_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = new_prefix()
    directory = _directory(prefix)
    study = Study(directory)
    _run(study, 6)
    whole = "".join(prefix.read_text(name) for name in _pieces(prefix))
    (tmp_path / "journal").write_text(whole)
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal")))
    assert storage.get_n_trials(storage.get_study_id_from_name(directory.sweep)) == 6
    assert len(_pieces(prefix)) == 2 + 6
    monkeypatch.setattr(study_storage, "_MOST_PIECES", 5)
    _run(study, 1)
    # The joined one, the first one of the writer, which stays, and the last one.
    assert len(_pieces(prefix)) == 3
    assert Study(directory).n_asked == 7


def test_a_joining_that_was_killed_before_it_removed_its_parts_counts_each_entry_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = _directory(new_prefix())
    study = Study(directory)
    _run(study, 6)
    monkeypatch.setattr(study_storage, "_MOST_PIECES", 5)
    monkeypatch.setattr(ObjectPrefix, "remove", lambda *_: None)
    _run(study, 1)
    resumed = Study(directory)
    assert resumed.asked() == [Asked(trial, is_told=True) for trial in range(7)]
