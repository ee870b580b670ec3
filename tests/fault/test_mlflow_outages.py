"""MLflow goes down during a sweep: the sweep is not affected, and in the end MLflow has each trial exactly once.

A real `mlflow server`, on SQLite and on PostgreSQL, is killed, frozen and started again under real sweeps.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from mlflow import MlflowClient
from rich.console import Console

from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.session import run_sweep
from attnsweep.orchestrator.running.summary import Summary
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking import following
from attnsweep.orchestrator.tracking.sync import SyncResult, sync
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces import Float, Sweep
from tests.fault.servers import MlflowServer, PostgresServer, postgres, wait_until

pytestmark = pytest.mark.scale
N_TRIALS, N_REPLICATES, PACK_SIZE = 12, 4, 4
SWEEP = Sweep(
    name="outage",
    workload="category_pairs",
    space={
        "n_steps": 30,
        "n_categories": 4,
        "n_positions": 6,
        "init_sigma": Float(low=1e-4, high=1.0, log=True),
        "learning_rate": Float(low=1e-3, high=1e-1, log=True),
    },
    sampler="random",
    trials=N_TRIALS,
    replicates=N_REPLICATES,
)
Rows = list[tuple[Any, ...]]

_RUNS = """
    with mine as (
        select runs.* from runs join tags on tags.run_uuid = runs.run_uuid
        where lifecycle_stage = 'active' and tags.key = 'attnsweep.sweep' and tags.value = :sweep
    )
"""
_LOGGED = {
    "runs": "select name, status, start_time, end_time from mine",
    "params": "select name, key, value from mine join params on params.run_uuid = mine.run_uuid",
    "metrics": "select name, key, value, step, timestamp from mine join metrics on metrics.run_uuid = mine.run_uuid",
    "tags": """
        select name, key, value from mine join tags on tags.run_uuid = mine.run_uuid
        where key <> 'mlflow.parentRunId'
    """,
    "parents": """
        select mine.name, parents.name from mine join tags on tags.run_uuid = mine.run_uuid
        join mine as parents on parents.run_uuid = tags.value where tags.key = 'mlflow.parentRunId'
    """,
}


@dataclass(frozen=True)
class Store:
    """A running MLflow server, and its PostgreSQL if it uses one."""

    server: MlflowServer
    postgres: PostgresServer | None

    def silent(self) -> AbstractContextManager[None]:
        """Makes the server accept requests without answering: it is frozen, or waits for PostgreSQL."""
        return self.postgres.locked("mlflow", "runs") if self.postgres else self.server.frozen()

    def rows(self, sql: str, **values: Any) -> Rows:
        return _rows(self.server.database, sql, **values)

    def n_trials(self, status: str) -> int:
        """The number of trials' runs, of all sweeps, in this state."""
        sql = """
            select count(*) from runs join tags on tags.run_uuid = runs.run_uuid
            where lifecycle_stage = 'active' and status = :status and key = 'attnsweep.kind' and value = 'trial'
        """
        return int(self.rows(sql, status=status)[0][0])

    def everything(self) -> dict[str, Rows]:
        engine = sqlalchemy.create_engine(self.server.database)
        tables = sqlalchemy.inspect(engine).get_table_names()
        engine.dispose()
        return {table: self.rows(f'select * from "{table}"') for table in tables}


def _rows(database: str, sql: str, **values: Any) -> Rows:
    engine = sqlalchemy.create_engine(database)
    with engine.connect() as connection:
        found = [tuple(row) for row in connection.execute(sqlalchemy.text(sql), values)]
    engine.dispose()
    return sorted(found, key=repr)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def running_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    home = tmp_path_factory.mktemp("mlflow")
    if request.param == "sqlite":
        yield from _serve(MlflowServer(f"sqlite:///{home / 'mlflow.db'}", home), None)
        return
    with postgres() as database:
        database.create("mlflow")
        yield from _serve(MlflowServer(database.uri("mlflow"), home), database)


def _serve(server: MlflowServer, database: PostgresServer | None) -> Iterator[Store]:
    try:
        server.start()
        yield Store(server, database)
    finally:
        server.kill()


@pytest.fixture
def store(running_store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", running_store.server.url)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    return running_store


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An MLflow database that is always available, to compare with."""
    return f"sqlite:///{tmp_path_factory.mktemp('undisturbed') / 'mlflow.db'}"


def _run(path: Path, monkeypatch: pytest.MonkeyPatch, events: Mapping[int, Callable[[], object]]) -> Summary:
    """Runs the sweep to its end; each event happens after the given number of commits."""
    commit, n_commits = SweepLoop._commit, 0

    def commit_and_go_on(loop: SweepLoop, *rows: Any) -> None:
        nonlocal n_commits
        commit(loop, *rows)
        n_commits += 1
        events.get(n_commits, lambda: None)()

    monkeypatch.setattr(SweepLoop, "_commit", commit_and_go_on)
    summary = run_sweep(SWEEP, path, Resources(local=True, pack_size=PACK_SIZE), Console(stderr=True))
    assert n_commits > max(events, default=0)
    assert summary.finished
    assert summary.n_trainings == N_TRIALS * N_REPLICATES
    return summary


def _assert_all_logged_once(store: Store, path: Path, undisturbed: str) -> None:
    """Asserts that the store has the same runs of this sweep as a store that was always available."""
    directory = SweepDirectory.open(path)
    sync(directory, undisturbed)
    for what, sql in _LOGGED.items():
        found = store.rows(_RUNS + sql, sweep=directory.sweep)
        assert found == _rows(undisturbed, _RUNS + sql, sweep=directory.sweep), what
    assert len(store.rows(_RUNS + _LOGGED["parents"], sweep=directory.sweep)) == N_TRIALS
    assert _artifacts(store.server.url, directory) == _artifacts(undisturbed, directory) != set()


def _artifacts(uri: str, directory: SweepDirectory) -> set[str]:
    client = MlflowClient(uri)
    experiments = [each.experiment_id for each in client.search_experiments()]
    condition = f"tags.`attnsweep.sweep` = '{directory.sweep}' and tags.`attnsweep.kind` = 'sweep'"
    [parent] = client.search_runs(experiments, condition)
    return {file.path for file in client.list_artifacts(parent.info.run_id)}


def _mlflow_sync(path: Path) -> str:
    command = [str(Path(sys.executable).with_name("attnsweep")), "mlflow-sync", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stderr


def _counts(store: Store, path: Path) -> Rows:
    """Finished and unfinished trials of a sweep."""
    sql = """
        select count(*) filter (where status = 'FINISHED'), count(*) filter (where status <> 'FINISHED')
        from mine join tags on tags.run_uuid = mine.run_uuid where key = 'attnsweep.kind' and value = 'trial'
    """
    return store.rows(_RUNS + sql, sweep=SweepDirectory.open(path).sweep)


@pytest.mark.parametrize("running_store", ["sqlite"], indirect=True)
def test_a_server_that_dies_for_good_leaves_the_rest_to_mlflow_sync(
    store: Store, tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die() -> None:
        wait_until(lambda: store.n_trials("FINISHED") > 0, "a trial to be logged")
        store.server.kill()

    path = tmp_path / "s"
    summary = _run(path, monkeypatch, {3: die})
    [(n_there, _)] = _counts(store, path)
    assert summary.mlflow.startswith("lacks some of the sweep: --tracking-uri: got ")
    assert "ConnectionRefusedError" in summary.mlflow
    assert f"once it answers: attnsweep mlflow-sync {path}" in summary.mlflow
    assert 0 < n_there < N_TRIALS

    store.server.start()
    assert _mlflow_sync(path).endswith(f"{N_TRIALS - n_there} trials logged, {n_there} already there\n")
    _assert_all_logged_once(store, path, undisturbed)
    before = store.everything()
    assert sync(SweepDirectory.open(path)) == SyncResult(n_logged=0, n_present=N_TRIALS)
    assert store.everything() == before


def test_a_store_that_comes_back_in_mid_sweep_gets_all_of_it(
    store: Store, tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process to disturb: the server, or the PostgreSQL behind it."""
    n_before = store.n_trials("FINISHED")

    def crash() -> None:
        wait_until(lambda: store.n_trials("FINISHED") > n_before, "a trial to be logged")
        store.postgres.crash() if store.postgres else store.server.kill()

    def come_back() -> None:
        (store.postgres or store.server).start()

    summary = _run(tmp_path / "s", monkeypatch, {2: crash, 5: come_back})
    assert summary.mlflow == f"mlflow ui --backend-store-uri {store.server.url}"
    _assert_all_logged_once(store, tmp_path / "s", undisturbed)


def test_a_store_that_falls_silent_gets_no_trial_twice_although_requests_were_repeated(
    store: Store, tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that waited for PostgreSQL executes all requests later; a frozen one forgets them."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "3")
    n_before, silence = store.n_trials("FINISHED"), ExitStack()

    def fall_silent() -> None:
        # All that was told is logged: what it is asked next is to make a run.
        wait_until(lambda: store.n_trials("FINISHED") - n_before == 3, "what was told to be logged")
        silence.enter_context(store.silent())

    with silence:
        summary = _run(tmp_path / "s", monkeypatch, {3: fall_silent})
    assert "TimeoutError" in summary.mlflow
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    directory = SweepDirectory.open(tmp_path / "s")
    assert sync(directory) == SyncResult(n_logged=9, n_present=3)
    _assert_all_logged_once(store, tmp_path / "s", undisturbed)


def test_the_end_of_a_sweep_does_not_wait_for_a_server_that_never_answers(
    store: Store, tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests never return in this test, so a loop that waited for one would never end."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "100000")
    monkeypatch.setattr(following, "_PATIENCE_SECONDS", 1.0)
    with store.server.frozen():
        summary = _run(tmp_path / "s", monkeypatch, {})
    assert "not done within 1 s" in summary.mlflow
    # An abandoned process logs nothing when its request is finally answered.
    assert _counts(store, tmp_path / "s") == [(0, 0)]
    assert sync(SweepDirectory.open(tmp_path / "s")) == SyncResult(n_logged=12, n_present=0)
    _assert_all_logged_once(store, tmp_path / "s", undisturbed)
