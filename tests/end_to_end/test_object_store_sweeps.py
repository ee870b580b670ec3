"""A whole sweep in an object store: killed on one machine, resumed on another, and the same as on a disk."""

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from obstore.store import S3Store

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.study import read_trials
from attnsweep.orchestrator.storage import object_store as store
from attnsweep.orchestrator.storage.place_names import PlaceName, place_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Float
from tests.fault import sweeps
from tests.orchestrator.commands import command
from tests.orchestrator.storage.object_store import another_machine, claim_of, leave_claim, new_prefix, objects

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
ELSEWHERE = ("sweep", "pack", "lane", "pack_size", "train_seconds", "probe_seconds", "finished_at")
"""Columns that tell when and in which pack a training was trained, not how it ended."""


@pytest.fixture(scope="module")
def undisturbed(no_mlflow: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweeps") / "undisturbed"
    assert sweeps.run(SPEC, path, pack_size=4).finished
    return path


def _rows(place: PlaceName) -> list[dict[str, Any]]:
    rows = Ledger(place).trainings().drop_columns([*ELSEWHERE])
    found: list[dict[str, Any]] = rows.sort_by([("trial", "ascending"), ("replicate", "ascending")]).to_pylist()
    return found


DRIVER = """
import sys
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.search_spaces import Sweep
from tests.fault import sweeps
def killed():
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
SweepLoop._commit = sweeps.after_commit(2, killed)
sweeps.run(Sweep.from_json(sys.argv[1]), sys.argv[2], pack_size=4)
"""


def test_a_driver_that_is_killed_is_succeeded_on_another_machine(
    undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = new_prefix()
    words = [sys.executable, "-c", DRIVER, SPEC.to_json(), uri]
    driver = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, check=False)
    assert driver.returncode == -signal.SIGKILL
    with another_machine():
        assert 0 < Ledger(uri).trainings().num_rows < 24
        monkeypatch.setattr(store, "_age", lambda *_: 2 * store.CLAIM_SECONDS)
        summary = sweeps.resume(uri)
        assert summary.finished
        assert json.loads(summary.to_json())["directory"] == uri
    assert _rows(uri) == _rows(undisturbed)
    assert all(trial.state.is_finished() for trial in read_trials(SweepDirectory.open(uri)))
    assert claim_of(uri)["holder"] == ""


def test_an_interrupted_sweep_is_resumed_on_its_machine(undisturbed: Path) -> None:
    uri = new_prefix()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SweepLoop, "_commit", sweeps.interrupt_after(2))
        assert not sweeps.run(SPEC, uri, pack_size=4).finished
    assert sweeps.resume(uri).finished
    assert _rows(uri) == _rows(undisturbed)
    with another_machine():
        assert _rows(uri) == _rows(undisturbed)


def test_a_driver_whose_claim_another_has_writes_nothing_more_and_ends_with_a_fault(tmp_path: Path) -> None:
    uri = new_prefix()
    before: dict[str, bytes] = {}
    commit = SweepLoop._commit

    def overtaken(*arguments: Any) -> None:
        leave_claim(uri)
        patch.setattr(store, "CLAIM_SECONDS", -1.0)
        before.update(objects(uri))
        commit(*arguments)

    (tmp_path / "spec.json").write_text(SPEC.to_json())
    words = ("run", tmp_path / "spec.json", "--dir", uri, "--local", "--no-report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SweepLoop, "_commit", overtaken)
        ended = command(*words, "--on-failure", f"cat > {tmp_path}/told.json")
    assert ended.code == 1
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["directory"] == uri
    assert "run, pid 1 on elsewhere, since today" in told["error"]
    assert ended.err.endswith(f"continue with: attnsweep resume {uri}\n")
    assert objects(uri) == before
    assert Ledger(uri).trainings().num_rows == 0


def test_a_store_that_is_gone_ends_the_run_and_loses_nothing(undisturbed: Path, tmp_path: Path) -> None:
    uri = new_prefix()
    place = place_of(uri)
    (tmp_path / "spec.json").write_text(SPEC.to_json())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        gone = S3Store("x", retry_config={"max_retries": 0}, client_options={"allow_http": True})
        patch.undo()
        cut = partial(patch.setattr, store, "_store", lambda *_: gone)
        patch.setattr(SweepLoop, "_commit", sweeps.after_commit(1, cut))
        ended = command("run", tmp_path / "spec.json", "--dir", uri, "--local", "--no-report")
    assert ended.code == 1
    assert ended.err.endswith(f"continue with: attnsweep resume {uri}\n")
    assert Ledger(place).trainings().num_rows > 0
    assert sweeps.resume(uri).finished
    with another_machine():
        assert _rows(uri) == _rows(undisturbed)
