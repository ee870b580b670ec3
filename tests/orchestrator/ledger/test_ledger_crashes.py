"""A crash at any step of any write: no row twice, none lost, and each pack whole or not at all."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.orchestrator.ledger.kills import crashes
from tests.orchestrator.ledger.ledger_rows import Key, commit, committed_keys, faults_of, held, keys_of, open_writer


def naive_keys(root: Path) -> list[Key]:
    """The rows that a glob over the folder reads."""
    rows = pq.read_table(root / "trainings")
    return sorted(zip(rows["trial"].to_pylist(), rows["replicate"].to_pylist(), strict=True))


def prepare(root: Path, *trials: int) -> set[Key]:
    root.mkdir()
    return commit(root, *trials)


@pytest.mark.slow
def test_a_commit_that_crashes_is_whole_or_nothing(tmp_path: Path) -> None:
    outcomes, left = [], set()
    before = prepare(tmp_path / "before", 0, 1)
    for step in range(100):
        root = shutil.copytree(tmp_path / "before", tmp_path / str(step))
        crashed = crashes(root, lambda root: commit(root, 2), step)
        found = committed_keys(root)
        assert found in (before, before | keys_of(2))
        assert held(root) == found
        left.add(len(faults_of(root)))
        with open_writer(root):
            assert held(root) == found
            assert naive_keys(root) == sorted(found)
            assert {path.suffix for path in root.glob("*/*")} == {".parquet"}
        if found == before:
            commit(root, 2)
        assert held(root) == before | keys_of(2)
        outcomes.append((crashed, found == before))
        if not crashed:
            break
    assert not crashed
    assert (True, True) in outcomes
    assert (True, False) in outcomes
    assert len(outcomes) > 10
    assert {0, 3} <= left
