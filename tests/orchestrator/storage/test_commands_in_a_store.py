"""Every command works on a sweep in an object store as on a disk, and says in one line why a store refuses."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from moto.core import set_initial_no_auth_action_count

from attnsweep import open_sweep
from attnsweep.orchestrator.storage.locks import LEASE_FILE
from attnsweep.orchestrator.storage.s3 import ObjectPrefix
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.orchestrator.commands import command
from tests.orchestrator.small_sweep import commit, open_writer, small_sweep, sweep_on_disk, trial_rows
from tests.orchestrator.storage.object_store import BUCKET, new_prefix, object_names

SPEC = small_sweep("s", trials=6, replicates=4)
TRIALS = [
    trial_rows(
        trial,
        ["solved", "solved", "marginal", "failed"] if trial % 2 else ["solved"] * 4,
        param_init_sigma=10.0 ** -(trial % 4),
        param_learning_rate=10.0 ** -(1 + trial % 3),
        param_n_steps=8,
    )
    for trial in range(6)
]


@pytest.fixture(scope="module")
def sweep(s3: str) -> SweepDirectory:
    """A sweep of two fragments."""
    directory = sweep_on_disk(new_prefix(), SPEC, *TRIALS[:3])
    with open_writer(directory) as writer:
        commit(writer, [{**row, "sweep": directory.sweep} for rows in TRIALS[3:] for row in rows])
    return directory


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    return sweep_on_disk(tmp_path_factory.mktemp("sweeps") / "s", SPEC, *TRIALS)


def test_status(sweep: SweepDirectory, on_disk: SweepDirectory) -> None:
    told, expected = (command("status", each.place).out.splitlines()[1:-1] for each in (sweep, on_disk))
    assert told == expected
    assert "24 of 24" in told[1]


def test_a_query_over_a_store_and_a_disk(sweep: SweepDirectory, on_disk: SweepDirectory) -> None:
    sql = "select count(*) as n, count(distinct sweep) as sweeps from trainings"
    told = command("query", sweep.place, on_disk.place, sql, "--format", "json")
    assert json.loads(told.out) == [{"n": 48, "sweeps": 2}]


@pytest.mark.scale
def test_a_report(sweep: SweepDirectory, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert str(out) in command("report", sweep.place, "--out", out).out
    assert sweep.sweep in out.read_text()


def test_answers_fetch_only_what_has_come_since(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = sweep_on_disk(new_prefix(), SPEC, *TRIALS[:4])
    data = open_sweep(str(directory.place))
    opened, open_file = [], ObjectPrefix.open_file

    def listen(prefix: ObjectPrefix, folder: str, name: str) -> pa.NativeFile:
        opened.append(name)
        return open_file(prefix, folder, name)

    monkeypatch.setattr(ObjectPrefix, "open_file", listen)
    assert data.stuck_rates()["n"][0].as_py() == data.trainings().num_rows - 2 == 14
    assert opened == []
    with open_writer(directory) as writer:
        commit(writer, [{**row, "sweep": directory.sweep} for row in TRIALS[4]])
    opened.clear()
    assert data.trainings().num_rows == 20
    assert len(set(opened)) == 1


@pytest.mark.scale
def test_mlflow_sync_and_compact(sweep: SweepDirectory, mlflow_uri: str) -> None:
    prefix = sweep.place
    assert isinstance(prefix, ObjectPrefix)
    for words in ("6 trials logged, 0 already there", "0 trials logged, 6 already there"):
        assert words in command("mlflow-sync", prefix, "--tracking-uri", mlflow_uri).err
    assert command("compact", prefix).code == 0
    assert len({name for name in object_names(prefix) if name.endswith(".parquet")}) == 2
    assert prefix.read_text(LEASE_FILE) == ""


def _mistake(*words: object) -> str:
    """The message of a command that the user must correct: one line without a secret."""
    ended = command(*words)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "planted-secret" not in ended.err
    return ended.err


WORDS = [("run", "quickstart", "--local", "--dir"), ("status",), ("resume",), ("compact",), ("mlflow-sync",)]
commands = pytest.mark.parametrize("words", WORDS, ids=lambda words: words[0])


@commands
def test_a_bucket_that_is_not_there(words: tuple[str, ...], s3: str) -> None:
    assert "NoSuchBucket" in _mistake(*words, "s3://no-such-bucket/x")


@commands
def test_credentials_that_are_wrong(words: tuple[str, ...], s3: str) -> None:
    place = f"s3://{BUCKET}/x"
    error = set_initial_no_auth_action_count(0)(_mistake)(*words, place)
    assert error.startswith(f"attnsweep: {place}: got '")
    assert "AWS_ACCESS_KEY_ID" in error
