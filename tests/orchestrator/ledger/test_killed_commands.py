"""`compact` killed at each write: readers cope with what is left, a repeat ends as undisturbed."""

import shutil
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.verification import verify
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.orchestrator.ledger.kills import crashes
from tests.orchestrator.small_sweep import commit, open_writer, small_sweep, trial_rows

LEFT_OVER = ("trainings/.p.0f.tmp", "curves/p-0123.parquet", "checkpoints/p-89ab.parquet", "set_aside/curves/p.parquet")


def _swept(root: Path) -> SweepDirectory:
    """A finished sweep of two fragments."""
    directory = SweepDirectory.create(root, small_sweep(root.name, trials=2), {})
    with open_writer(directory) as writer:
        for trial in range(2):
            commit(writer, trial_rows(trial, ["solved", "marginal"] * 2, sweep=directory.sweep))
    directory.record_run(finished=True, seconds=1.0)
    return directory


def _with_garbage(home: Path) -> None:
    _swept(home / "out")
    for name in LEFT_OVER:
        path = home / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")


def _rows(home: Path) -> dict[str, list[dict[str, Any]]]:
    ledger = Ledger(home / "out")
    keys = {"trainings": ("trial", "replicate"), "curves": ("trial", "replicate", "metric", "step")}
    found = {"trainings": ledger.trainings().to_pylist(), "curves": ledger.curves().to_pylist()}
    return {table: sorted(rows, key=itemgetter(*keys[table])) for table, rows in found.items()}


@pytest.mark.slow
@pytest.mark.sample("11")
@pytest.mark.parametrize("stride", [1, 11])
def test_a_killed_compact_is_repeated(stride: int, tmp_path: Path) -> None:
    home = tmp_path / "home"

    def begin() -> None:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        shutil.copytree(tmp_path / "before", home, dirs_exist_ok=True)

    def act(home: Path) -> None:
        compact(home / "out")

    (tmp_path / "before").mkdir()
    _with_garbage(tmp_path / "before")
    begin()
    before = _rows(home)
    act(home)
    ended = _rows(home)
    n_kills = 0
    for step in range(0, 400, stride):
        begin()
        crashed = crashes(home, act, step)
        n_kills += crashed
        assert _rows(home) in (before, ended)
        act(home)
        assert _rows(home) == ended
        directory = SweepDirectory.open(home / "out")
        assert directory.finished
        assert verify(directory.place, directory.spec_sha256) == []
        assert directory.place.names("checkpoints") == []
        if not crashed:
            break
    assert not crashed
    assert n_kills * stride > 10
