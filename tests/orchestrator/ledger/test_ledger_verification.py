"""Every damaged byte is found; damaged packs are set aside, and the rest of the ledger stays usable."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.ledger.query import query_all
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.workloads.errors import UserError
from tests.orchestrator.ledger.ledger_rows import (
    commit,
    committed_keys,
    faults_of,
    file_of,
    held,
    keys_of,
    open_writer,
    pack_rows,
)
from tests.refusals import refused

TABLES = ("trainings", "curves", "heads")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three packs of two trainings."""
    path = tmp_path / "sweep"
    path.mkdir()
    commit(path, 0, 1, 2)
    return path


def _flip(path: Path, position: int) -> None:
    """Damages one bit."""
    whole = bytearray(path.read_bytes())
    whole[position] ^= 1
    path.write_bytes(whole)


def _page(path: Path, column: int = 0) -> int:
    """The last byte of a column's data."""
    chunk = pq.read_metadata(path).row_group(0).column(column)
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    return int(start + chunk.total_compressed_size - 1)


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_a_single_wrong_bit_anywhere_is_found(root: Path, table: str) -> None:
    path = file_of(root, table, "p1")
    whole = path.read_bytes()
    for position in range(0, len(whole), max(len(whole) // 40, 1)):
        _flip(path, position)
        assert faults_of(root) == [f"{table}/{path.name}"]
        path.write_bytes(whole)
    assert faults_of(root) == []


DAMAGES: list[Callable[[Path], object]] = [
    lambda path: path.write_bytes(path.read_bytes()[:-100]),
    lambda path: path.write_bytes(b""),
    lambda path: _flip(path, _page(path)),
    lambda path: path.unlink(),
]


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("damage", DAMAGES, ids=["truncated", "empty", "corrupted", "missing"])
def test_a_writer_sets_a_damaged_fragment_aside_and_the_rest_goes_on(
    root: Path, table: str, damage: Callable[[Path], object]
) -> None:
    path = file_of(root, table, "p1")
    damage(path)
    is_missing = not path.exists()
    left = {
        str(each.relative_to(root)): each.read_bytes() for each in root.glob(f"*/{path.name}") if each.parent != root
    }
    with open_writer(root) as writer:
        lost = {} if is_missing and table == "trainings" else writer.set_aside
        if lost:
            assert list(lost) == [path.stem]
            # Nothing of the damaged pack is deleted.
            assert left == {
                str(each.relative_to(root / "set_aside")): each.read_bytes()
                for each in root.glob("set_aside/*/*.parquet")
            }
        assert held(root) == keys_of(0, 2)
        writer.commit("p1", *pack_rows("p1", [(1, 0), (1, 1)]))
    assert held(root) == keys_of(0, 1, 2)
    assert faults_of(root) == []
    with open_writer(root) as writer:
        assert writer.set_aside == {}


def test_a_damaged_merge_gives_way_to_what_it_replaced_while_that_is_there(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = shutil.copytree(root, root.parent / "saved")
    compact(root)
    (merged,) = (root / "curves").iterdir()
    shutil.copytree(saved, root, dirs_exist_ok=True)
    assert committed_keys(root) == keys_of(0, 1, 2)
    # The compaction was killed after it had removed one file of curves.
    file_of(root, "curves", "p0").unlink()
    _flip(merged, _page(merged))
    with open_writer(root) as writer:
        assert {name.partition("-")[0] for name in writer.set_aside} == {"merged", "p0"}
        assert held(root) == keys_of(1, 2)


def test_a_fragment_that_repeats_trainings_of_others_is_set_aside(root: Path) -> None:
    """As a late upload leaves it, of a writer that has lost the sweep; nothing may merge it with the others."""
    with open_writer(root) as writer:
        writer.commit("q", *pack_rows("q", [(2, 1), (3, 0)]))
    with refused("trainings", UserError):
        compact(root)
    path = file_of(root, "trainings", "q")
    with open_writer(root) as writer:
        assert list(writer.set_aside) == [path.stem]
        assert held(root) == keys_of(0, 1, 2)
    assert {path.parent.name for path in root.glob(f"set_aside/*/{path.name}")} == set(TABLES)
    compact(root)
    assert held(root) == keys_of(0, 1, 2)


def test_setting_aside_that_a_crash_cut_short_is_ended_by_the_next(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = file_of(root, "heads", "p1").stem
    _flip(root / "heads" / f"{name}.parquet", 50)
    (root / "set_aside" / "curves").mkdir(parents=True)
    (root / "curves" / f"{name}.parquet").rename(root / "set_aside" / "curves" / f"{name}.parquet")
    with open_writer(root) as writer:
        assert set(writer.set_aside) == {name}
    assert {str(path.parent.name) for path in root.glob(f"set_aside/*/{name}.parquet")} == set(TABLES)


def test_a_reader_meets_no_wrong_number(root: Path) -> None:
    path = file_of(root, "curves", "p1")
    _flip(path, _page(path, pq.read_schema(path).get_field_index("value")))
    with refused(path.name, UserError):
        Ledger(root).curves()
    with pytest.raises(UserError):
        query_all([Ledger(root)], "FROM curves")
    assert Ledger(root).trainings().num_rows == 6


def test_a_file_of_a_newer_version_is_not_damaged(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnsweep.orchestrator.ledger.fragments.SCHEMA_VERSION", 0)
    with pytest.raises(UserError):
        open_writer(root)
    assert not (root / "set_aside").exists()
