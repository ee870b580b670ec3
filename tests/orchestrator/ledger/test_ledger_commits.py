"""Committed rows are read back, by our reader and by others, from few files."""

import itertools
import os
from pathlib import Path
from random import Random

import duckdb
import pandas as pd
import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnsweep.orchestrator.ledger import snapshot
from attnsweep.orchestrator.ledger.compaction import MAX_FRAGMENTS, compact, due
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.files import parquet_names
from tests.orchestrator.ledger.ledger_rows import (
    commit,
    committed_keys,
    faults_of,
    held,
    keys_of,
    open_writer,
    pack_rows,
    training_rows,
)
from tests.present import present

numbers = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))
row = st.fixed_dictionaries(
    {
        "variant": st.one_of(st.none(), st.text()),
        "seed": st.integers(-(2**63), 2**63 - 1),
        "param_init_sigma": numbers,
        "param_n_categories": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        "param_stop_when_solved": st.one_of(st.none(), st.booleans()),
        "outcome": st.sampled_from(["solved", "failed", "marginal"]),
        "eval_loss": numbers,
        "onset_step": st.one_of(st.none(), st.integers(0, 2**31 - 1)),
        "error": st.one_of(st.none(), st.text()),
    }
)


@pytest.mark.slow
@settings(max_examples=12)
@given(packs=st.lists(st.lists(row, min_size=1, max_size=4), min_size=1, max_size=4), compacted=st.booleans())
def test_any_rows_are_read_back_equal(
    tmp_path_factory: pytest.TempPathFactory, packs: list[list[dict[str, object]]], compacted: bool
) -> None:
    root = tmp_path_factory.mktemp("sweep")
    written = []
    with open_writer(root) as writer:
        for trial, rows in enumerate(packs):
            keyed = [each | {"trial": trial, "replicate": replicate} for replicate, each in enumerate(rows)]
            trainings = training_rows(f"p{trial}", *keyed)
            written += trainings.to_pylist()
            writer.commit(f"p{trial}", trainings, None, None)
    if compacted:
        compact(root)
    assert Ledger(root).trainings().sort_by([("trial", "ascending"), ("replicate", "ascending")]).to_pylist() == written


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


def test_the_smallest_fragments_are_merged_and_large_ones_left() -> None:
    large = {"big": 1000, "middle": 40}
    small = {f"p{number}": 4 for number in range(MAX_FRAGMENTS - 2)}
    assert due(large | small) == []
    assert sorted(due(large | small | {"new": 1})) == sorted([*small, "new", "middle"])
    assert sorted(due(large | {"middle": 41} | small | {"new": 1})) == sorted([*small, "new"])


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


@pytest.mark.parametrize("compacted", [False, True])
def test_others_read_the_files_by_a_glob(tmp_path: Path, compacted: bool) -> None:
    commit(tmp_path, 0, 1, 2, n_replicates=1)
    if compacted:
        compact(tmp_path)
    glob = f"{tmp_path}/trainings/*.parquet"
    assert sorted(pd.read_parquet(tmp_path / "trainings")["trial"]) == [0, 1, 2]
    assert sorted(pl.read_parquet(glob)["trial"]) == [0, 1, 2]
    assert pl.scan_parquet(glob).filter(pl.col("outcome") == "solved").collect().height == 3
    assert sorted(pq.read_table(tmp_path / "trainings")["trial"].to_pylist()) == [0, 1, 2]
    assert present(duckdb.sql(f"select trial from '{glob}' where outcome = 'solved' order by 1")).fetchall() == [
        (0,),
        (1,),
        (2,),
    ]
    assert pd.read_parquet(tmp_path / "curves").groupby("metric", observed=True)["value"].sum()["loss"] == 9.0


def test_a_part_of_a_table_can_be_read(tmp_path: Path) -> None:
    commit(tmp_path, 0, 1, 2)
    ledger = Ledger(tmp_path)
    assert ledger.trainings(filter=pc.field("trial") == 1)["replicate"].to_pylist() == [0, 1]
    curves = ledger.curves(columns=["value"], filter=(pc.field("metric") == "loss") & (pc.field("trial") == 2))
    assert curves.column_names == ["value"]
    assert curves["value"].to_pylist() == [0.0, 1.0, 2.0] * 2


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


def test_a_reader_does_not_wait_for_a_pause_in_the_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more pack is committed after each listing."""
    names, numbers = parquet_names, iter(range(1, MAX_FRAGMENTS))

    def outrun(folder: Path) -> list[str]:
        listing = names(folder)
        for number in itertools.islice(numbers, 1):
            writer.commit(f"p{number}", *pack_rows(f"p{number}", [(number, 0)]))
        return listing

    with open_writer(tmp_path) as writer:
        writer.commit("p0", *pack_rows("p0", [(0, 0)]))
        monkeypatch.setattr(snapshot, "parquet_names", outrun)
        assert committed_keys(tmp_path) == {(0, 0)}
