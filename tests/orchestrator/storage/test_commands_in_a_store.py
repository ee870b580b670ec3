"""Commands work on a sweep in an object store as on a disk, also on a machine that has no copy of it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from attnsweep.orchestrator.storage.place_names import BULK, place_of
from tests.orchestrator.commands import command
from tests.orchestrator.small_sweep import commit, open_writer, small_sweep, sweep_on_disk, trial_rows
from tests.orchestrator.storage.object_store import another_machine, new_prefix, objects

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
def sweep(s3: str) -> Iterator[str]:
    """A sweep of two fragments, of another machine."""
    uri = new_prefix()
    directory = sweep_on_disk(uri, SPEC, *TRIALS[:3])
    with open_writer(directory) as writer:
        commit(writer, [{**row, "sweep": directory.sweep} for rows in TRIALS[3:] for row in rows])
    with another_machine():
        yield uri


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sweep_on_disk(tmp_path_factory.mktemp("sweeps") / "s", SPEC, *TRIALS).place


def test_status_and_list(sweep: str, on_disk: Path) -> None:
    told, expected = (command("status", each).out.splitlines() for each in (sweep, on_disk))
    assert told[1:-1] == expected[1:-1]
    assert told[-1].endswith(f"attnsweep resume {sweep}")
    assert not (place_of(sweep, without=BULK) / "curves").exists()
    listed = json.loads(command("list", sweep.rpartition("/")[0], "--json").out)
    assert [(row["n_trainings"], row["n_bytes"] > 10_000) for row in listed if row["place"] == sweep] == [(24, True)]


def test_a_query_over_a_store_and_a_disk(sweep: str, on_disk: Path) -> None:
    sql = "select count(*) as n, count(distinct sweep) as sweeps from trainings"
    told = command("query", sweep, on_disk, sql, "--format", "json")
    assert json.loads(told.out) == [{"n": 48, "sweeps": 2}]


@pytest.mark.scale
def test_mlflow_sync_and_compact(sweep: str, mlflow_uri: str) -> None:
    for words in ("6 trials logged, 0 already there", "0 trials logged, 6 already there"):
        assert words in command("mlflow-sync", sweep, "--tracking-uri", mlflow_uri).err
    assert command("compact", sweep).code == 0
    assert sum(name.endswith(".parquet") for name in objects(sweep)) == 2
