"""Committed rows are read back, by our reader and by others, from few files."""

import os
from pathlib import Path
from random import Random

import duckdb
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnsweep.orchestrator.ledger import snapshot
from attnsweep.orchestrator.ledger.compaction import MAX_FRAGMENTS, compact
from tests.orchestrator.ledger.ledger_rows import (
    commit,
    committed_keys,
    faults_of,
    held,
    keys_of,
    open_writer,
    pack_rows,
)


@pytest.mark.slow
@settings(max_examples=12)
@given(st.lists(st.sampled_from(["commit", "compact", "reopen"]), max_size=18), st.randoms())
def test_any_order_of_commits_and_compactions_gives_each_row_once(
    tmp_path_factory: pytest.TempPathFactory, actions: list[str], random: Random
) -> None:
    root = tmp_path_factory.mktemp("sweep")
    keys = [(trial, replicate) for trial in range(25) for replicate in range(2)]
    random.shuffle(keys)
    committed = set()
    writer = open_writer(root)
    for number, action in enumerate(actions):
        if action == "commit":
            pack = [keys.pop(), keys.pop()]
            # A pack's name may recur: an interrupted loop packs the remaining trainings anew.
            name = f"p{number % 2}"
            writer.commit(name, *pack_rows(name, pack, n_steps=1))
            committed.update(pack)
        else:
            writer.close()
            if action == "compact":
                compact(root)
            assert faults_of(root) == []
            writer = open_writer(root)
    writer.close()
    assert held(root, n_steps=1) == committed


@pytest.mark.slow
def test_files_stay_few_and_rows_are_not_rewritten_at_each_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, written = 0, 0
    replace = os.replace

    def counting_replace(source: Path, target: Path) -> None:
        nonlocal most, written
        replace(source, target)
        most = max(most, len(list(tmp_path.glob("*/*"))))
        if target.parent.name == "trainings":
            written += pq.read_metadata(target).num_rows

    monkeypatch.setattr(os, "replace", counting_replace)
    keys = commit(tmp_path, *range(60), n_replicates=1, n_steps=1)
    assert 30 < most <= 3 * (MAX_FRAGMENTS + 2) <= 50
    assert written < 60 * 4
    assert held(tmp_path, n_steps=1) == keys


def test_compact_leaves_one_sorted_file_per_table(tmp_path: Path) -> None:
    with open_writer(tmp_path) as writer:
        for trial in (2, 0, 1):
            writer.commit(f"p{trial}", *pack_rows(f"p{trial}", [(trial, 1), (trial, 0)]))
    compact(tmp_path)
    sort_keys = {
        "trainings": ["trial", "replicate"],
        "curves": ["trial", "replicate", "metric", "step"],
        "heads": ["trial", "replicate", "step", "layer", "head"],
    }
    for table, keys in sort_keys.items():
        (path,) = (tmp_path / table).iterdir()
        found = list(zip(*(pq.read_table(path)[key].to_pylist() for key in keys), strict=True))
        assert found == sorted(found)
    assert held(tmp_path) == keys_of(0, 1, 2)


def test_others_read_the_files_by_a_glob(tmp_path: Path) -> None:
    commit(tmp_path, 0, 1, 2, n_replicates=1)
    glob = f"{tmp_path}/trainings/*.parquet"
    assert sorted(pd.read_parquet(tmp_path / "trainings")["trial"]) == [0, 1, 2]
    assert sorted(pl.read_parquet(glob)["trial"]) == [0, 1, 2]
    assert duckdb.execute(f"select sum(trial) from '{glob}' where outcome = 'solved'").fetchall() == [(3,)]
    assert pd.read_parquet(tmp_path / "curves").groupby("metric", observed=True)["value"].sum()["loss"] == 9.0


def test_a_listing_that_ran_across_a_compaction_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing misses both: it passed the new file's place before the file appeared, and the old files were then
    unlinked."""
    commit(tmp_path, 0, 1, 2, n_replicates=1)

    def overtaken(folder: Path) -> list[str]:
        del folder
        monkeypatch.undo()
        compact(tmp_path)
        return []

    monkeypatch.setattr(snapshot, "parquet_names", overtaken)
    assert committed_keys(tmp_path) == {(trial, 0) for trial in range(3)}
