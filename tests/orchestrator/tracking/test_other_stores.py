"""W&B and TensorBoard have each trial of the ledger exactly once, as their own formats say. W&B works offline here."""

import json
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.run_records import Beacon
from attnsweep.orchestrator.storage.sweep_record import Extension
from attnsweep.orchestrator.tracking.follow import Follower, SyncResult, sync_with
from attnsweep.orchestrator.tracking.other_stores import TensorBoardStore, WandbStore
from attnsweep.orchestrator.tracking.run_store import RunStore
from attnsweep.workloads.errors import UserError
from tests.fault.servers import wait_until
from tests.orchestrator.small_sweep import STEPS, commit, open_writer, small_sweep, sweep_on_disk, trial_rows

SOLVED = ["solved"] * 4

Read = Callable[[Path], dict[int, dict[str, Any]]]
"""The runs in a folder by trial: `name`, `parameters`, `metrics` and `curve`."""


def runs_of_tensorboard(folder: Path) -> dict[int, dict[str, Any]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    found = {}
    for path in folder.glob("*/*"):
        events = EventAccumulator(str(path)).Reload()
        scalars = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
        summary = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
        hparams = HParamsPluginData.FromString(summary).session_start_info.hparams
        curve = [(each.step, each.value) for each in scalars.pop("loss_curve/median")]
        trial = int(path.name.split()[0].removeprefix("#"))
        assert trial not in found
        found[trial] = {
            "name": path.name,
            "parameters": {name: getattr(value, value.WhichOneof("kind")) for name, value in hparams.items()},
            "metrics": {tag: each.value for tag, (each, *_) in scalars.items()},
            "curve": curve,
        }
    return found


def records(file: Path) -> Iterator[Any]:
    """The records of a run of W&B: LevelDB's log of blocks of 32 KiB, after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 2**15 - at % 2**15 < 7:
            at += 2**15 - at % 2**15
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # All of it, or its last part.
            yield Record.FromString(whole)
            whole = b""


def runs_of_wandb(folder: Path) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for file in folder.glob("wandb/offline-run-*/run-*.wandb"):
        run: dict[str, Any] = {"metrics": {}, "curve": []}
        for record in records(file):
            if record.WhichOneof("record_type") == "run":
                run |= {"name": record.run.display_name, "group": record.run.run_group, "project": record.run.project}
                run["parameters"] = {each.key: json.loads(each.value_json) for each in record.run.config.update}
            elif record.WhichOneof("record_type") == "history":
                row = {(each.key or each.nested_key[0]): json.loads(each.value_json) for each in record.history.item}
                run["curve"].append((record.history.step.num, row["loss_curve/median"]))
            elif record.WhichOneof("record_type") == "summary":
                update = record.summary.update
                run["metrics"] |= {(each.key or each.nested_key[0]): json.loads(each.value_json) for each in update}
        trial = int(file.stem.rpartition("-")[2])
        assert trial not in found
        found[trial] = run
    return found


@pytest.fixture(params=["tensorboard", "wandb"])
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    library = pytest.importorskip(request.param, reason=f"no {request.param}: pip install 'attnsweep[{request.param}]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "out"))
    if request.param == "wandb":
        # It has read the environment of an earlier test.
        library.teardown()
    return str(request.param)


@pytest.fixture
def store(kind: str, tmp_path: Path) -> RunStore:
    return TensorBoardStore(tmp_path / "out") if kind == "tensorboard" else WandbStore.of_environment()


@pytest.fixture
def runs(kind: str, tmp_path: Path) -> Callable[[], dict[int, dict[str, Any]]]:
    read: Mapping[str, Read] = {"tensorboard": runs_of_tensorboard, "wandb": runs_of_wandb}
    return lambda: read[kind](tmp_path / "out")


@pytest.mark.slow
def test_a_trial_becomes_a_run(
    store: RunStore, runs: Callable[[], dict[int, dict[str, Any]]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = trial_rows(7, ["solved", "runaway", "diverged", "failed"], param_init_sigma=0.03, param_learning_rate=1e-2)
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("child"), rows, trial_rows(8, SOLVED))
    assert sync_with(directory, store) == SyncResult(n_logged=2, n_present=0)
    assert sync_with(directory, store) == SyncResult(n_logged=0, n_present=2)
    assert capfd.readouterr().out == ""
    run = runs()[7]
    assert sorted(runs()) == [7, 8]
    assert run["name"] == "#7 sigma=0.03 lr=1e-2"
    assert {"init_sigma": 0.03, "n_categories": 10, "stop_when_solved": True}.items() <= run["parameters"].items()
    assert run["metrics"]["stuck_rate"] == pytest.approx(1 / 3)
    assert run["metrics"]["n_trainings"] == 4
    assert run["curve"] == [(step, 11.0 - step) for step in STEPS]
    if isinstance(store, WandbStore):
        assert (run["group"], run["project"]) == (directory.sweep, "category_pairs")


def test_replicates_that_are_added_replace_the_run(
    store: RunStore, runs: Callable[[], dict[int, dict[str, Any]]], tmp_path: Path
) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("replicates"), trial_rows(0, SOLVED))
    with closing(Follower(directory.place, store, lambda _: None)) as follower:
        follower.look()
        assert follower.state.problem is None
        assert runs()[0]["metrics"]["n_trainings"] == 4
        directory.record_as(directory.extended(Extension(replicates=2)))
        with open_writer(directory) as writer:
            commit(writer, [{**row, "sweep": directory.sweep} for row in trial_rows(0, ["solved"] * 6)[4:]])
        follower.look()
        assert follower.state.problem is None
    assert runs()[0]["metrics"]["n_trainings"] == 6


def test_the_run_of_a_retried_trial_is_behind_until_it_has_the_new_end(store: RunStore, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("retried"), trial_rows(0, SOLVED))
    with closing(Follower(directory.place, store, lambda _: None)) as follower:
        follower.look()
    with Ledger(directory.place).reading() as connection:
        ((ended,),) = connection.execute("select epoch_ms(max(finished_at)) from trainings").fetchall()
    finished = [
        store.runs_of(directory).logged(retried)[0] for retried in ({}, {0: ended}, {0: None}, {0: ended + 5000})
    ]
    assert finished == [{0}, {0}, set(), set()]


@pytest.mark.slow
def test_a_running_sweep_is_followed(
    store: RunStore, runs: Callable[[], dict[int, dict[str, Any]]], tmp_path: Path
) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("elsewhere"), trial_rows(0, SOLVED))
    beacon = Beacon(directory.place)
    told: list[int] = []
    with ThreadPoolExecutor(1) as threads:
        with open_writer(directory) as writer:
            beacon.show("training", 2, ())
            following = threads.submit(sync_with, directory, store, lambda n, _: told.append(n), follow=True)
            wait_until(lambda: 1 in told or following.done(), "the first trial")
            with pytest.raises(UserError, match=rf"works on \({store.command[0]}, pid "):
                sync_with(directory, store, follow=True)
            commit(writer, trial_rows(1, SOLVED))
            wait_until(lambda: 2 in told or following.done(), "the second trial")
            beacon.end()
        assert following.result() == SyncResult(n_logged=2, n_present=0)
    assert sorted(runs()) == [0, 1]


_KILLED = """
import sys
from tests.fault.killed_driver import plant
plant(sys.argv[1])
from attnsweep.orchestrator.cli import app
app(sys.argv[2:])
"""


@pytest.mark.sample("wandb-within")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "point", "n_left"),
    [
        ("tensorboard", "tensorboard.summary.writer.record_writer:RecordWriter.write@40", 2),
        ("tensorboard", "pathlib:Path.replace@2", 2),
        ("wandb", "wandb.sdk.wandb_run:Run.finish@2", 3),
        ("wandb", "attnsweep.orchestrator.tracking.other_stores:WandbRuns._mark@2", 2),
    ],
    indirect=["kind"],
    ids=["tensorboard-within", "tensorboard-before it counts", "wandb-within", "wandb-before it counts"],
)
def test_a_kill_loses_and_doubles_nothing(
    kind: str, point: str, n_left: int, store: RunStore, runs: Callable[[], dict[int, dict[str, Any]]], tmp_path: Path
) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("killed"), *(trial_rows(t, SOLVED) for t in range(3)))
    options = ["--out", str(tmp_path / "out")] if kind == "tensorboard" else []
    command = [sys.executable, "-c", _KILLED, point, f"{kind}-sync", str(directory.place), *options]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert sync_with(directory, store) == SyncResult(n_logged=n_left, n_present=3 - n_left)
    assert sorted(runs()) == [0, 1, 2]
    assert all(run["metrics"]["n_trainings"] == 4 and len(run["curve"]) == len(STEPS) for run in runs().values())


def test_a_library_that_is_not_installed_is_named(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("bare"), trial_rows(0, SOLVED))
    options = ["--out", str(tmp_path / "out")] if kind == "tensorboard" else []
    monkeypatch.setitem(sys.modules, kind, None)
    found = CliRunner().invoke(app, [f"{kind}-sync", str(directory.place), *options])
    assert str(found.exception).startswith(f"{kind}-sync: got 'the library {kind} cannot be imported ")
    assert str(found.exception).endswith(f"; install it with: pip install 'attnsweep[{kind}]'")


def test_wandb_without_an_account_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="no wandb: pip install 'attnsweep[wandb]'")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:1")
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("nobody"), trial_rows(0, SOLVED))
    with pytest.raises(UserError, match=r"wandb-sync: got .*; run `wandb login`, or set WANDB_MODE=offline"):
        sync_with(directory, WandbStore(tmp_path))
    wandb.teardown()


def test_the_folder_of_a_hostile_name_stays_in_the_log_folder(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="no tensorboard: pip install 'attnsweep[tensorboard]'")
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("small"), trial_rows(0, SOLVED))
    hostile = directory.model_copy(update={"sweep": "../../above"})
    sync_with(hostile, TensorBoardStore(tmp_path / "out"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "sweep"]
