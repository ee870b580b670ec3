"""A whole sweep in an object store: interrupted, killed, resumed, and the same as on a disk."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.study_storage import read_trials
from attnsweep.orchestrator.storage import locks as lease
from attnsweep.orchestrator.storage.locks import LEASE_FILE
from attnsweep.orchestrator.storage.place_names import PlaceName, place_of
from attnsweep.orchestrator.storage.s3 import ObjectPrefix
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Float
from tests.fault import sweeps
from tests.orchestrator.commands import command
from tests.orchestrator.storage.object_store import new_prefix, object_names

pytestmark = pytest.mark.usefixtures("s3", "no_mlflow")

SPEC = sweeps.small_sweep(
    space={
        "n_steps": 10,
        "n_categories": 4,
        "n_positions": 6,
        "init_sigma": Float(low=1e-4, high=1.0, log=True),
        "learning_rate": Float(low=1e-3, high=1e-1, log=True),
    },
    sampler="tpe",
    trials=6,
    seed=3,
)


@pytest.fixture(scope="module")
def undisturbed(no_mlflow: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweeps") / "undisturbed"
    assert sweeps.run(SPEC, path, pack_size=4).finished
    return path


def _rows(place: PlaceName) -> list[dict[str, Any]]:
    """Columns that describe a training and its result, not where, when and in which pack it was trained."""
    rows = (
        Ledger(place)
        .trainings()
        .drop_columns(
            [
                "sweep",
                "pack",
                "lane",
                "pack_size",
                "train_seconds",
                "probe_seconds",
                "finished_at",
                "host",
                "device",
                "accelerator",
            ]
        )
    )
    found: list[dict[str, Any]] = rows.sort_by([("trial", "ascending"), ("replicate", "ascending")]).to_pylist()
    return found


def _dying(n_calls: int, n_called: Iterator[int], real: Callable[..., None]) -> Callable[..., None]:
    """The original method for this many calls of all that share a count; then it fails."""

    def call(*arguments: Any) -> None:
        if next(n_called) >= n_calls:
            raise KeyboardInterrupt
        real(*arguments)

    return call


def test_an_interrupted_sweep_is_resumed_to_the_ledger_of_an_undisturbed_one(undisturbed: Path) -> None:
    prefix = new_prefix()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SweepLoop, "_commit", sweeps.interrupt_after(2))
        first = sweeps.run(SPEC, prefix, pack_size=4)
    assert not first.finished
    assert 0 < first.n_trainings < 24
    assert json.loads(first.to_json())["directory"] == str(prefix)
    assert sweeps.resume(place_of(str(prefix))).finished
    assert _rows(prefix) == _rows(undisturbed)
    assert all(trial.state.is_finished() for trial in read_trials(SweepDirectory.open(prefix)))
    assert prefix.read_text(LEASE_FILE) == ""


@pytest.mark.scale
@pytest.mark.parametrize("upload", range(9, 13))
def test_a_driver_that_dies_at_an_upload_neither_loses_nor_repeats_a_training(undisturbed: Path, upload: int) -> None:
    """The kill is within the second commit, which has a piece of the study and three tables. No later write reaches the
    store."""
    prefix = new_prefix()
    with pytest.MonkeyPatch.context() as patch:
        n_called = itertools.count()
        patch.setattr(ObjectPrefix, "_put", _dying(upload, n_called, ObjectPrefix._put))
        with pytest.raises(KeyboardInterrupt):
            sweeps.run(SPEC, prefix, pack_size=4)
    assert sweeps.resume(prefix).finished
    assert _rows(prefix) == _rows(undisturbed)
    assert all(trial.state.is_finished() for trial in read_trials(SweepDirectory.open(prefix)))


def test_a_driver_whose_lease_another_has_writes_nothing_more_and_ends_with_a_fault(tmp_path: Path) -> None:
    prefix = new_prefix()
    before: dict[str, str] = {}
    commit = SweepLoop._commit

    def overtaken(*arguments: Any) -> None:
        patch.setattr(lease, "LEASE_SECONDS", 0.0)
        owner = {"work": "resume", "host": "elsewhere", "pid": 7, "since": "2025-11-01 12:00:00 UTC", "processes": None}
        prefix.put_text(LEASE_FILE, json.dumps(owner))
        before.update(_texts(prefix))
        commit(*arguments)

    (tmp_path / "spec.json").write_text(SPEC.to_json())
    words = ("run", tmp_path / "spec.json", "--dir", prefix, "--local", "--no-report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SweepLoop, "_commit", overtaken)
        ended = command(*words, "--on-failure", f"cat > {tmp_path}/told.json")
    assert ended.code == 1
    told = json.loads((tmp_path / "told.json").read_text())
    fault = told["error"]
    assert told["directory"] == str(prefix)
    assert fault.startswith(f"{prefix}: ")
    assert "resume, pid 7 on elsewhere, since 2025-11-01 12:00:00 UTC" in fault
    said = f"attnsweep: {fault}\nonce the cause is fixed, continue with: attnsweep resume {prefix}\n"
    assert ended.err.endswith(said)
    assert _texts(prefix) == before
    assert Ledger(prefix).trainings().num_rows == 0


def _texts(prefix: ObjectPrefix) -> dict[str, str]:
    """All objects except locks."""
    return {name: prefix.read_text(name) for name in object_names(prefix) if not name.endswith(".lock")}
