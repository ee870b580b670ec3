"""The content of a sweep directory, an object store or a user's array is data, and is never executed."""

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnsweep import open_sweep
from attnsweep.orchestrator.ledger.query import query_all
from attnsweep.orchestrator.ledger.reader import Ledger
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


@pytest.fixture
def went_off(tmp_path: Path) -> Path:
    """The file that a bomb would create; asserts first that the bomb works."""
    path = tmp_path / "went off"
    pickle.loads(pickle.dumps(Bomb(path)))
    path.unlink()
    return path


def test_pickles_in_the_metadata_of_parquet_are_not_loaded(tmp_path: Path, went_off: Path) -> None:
    directory = sweep_on_disk(tmp_path / "s", small_sweep("planted"), trial_rows(0, ["solved"] * 4))
    (file,) = (directory.place / "trainings").glob("*.parquet")
    table, bomb = pq.read_table(file), pickle.dumps(Bomb(went_off))
    extension = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": bomb}
    table = table.append_column(pa.field("param_planted", pa.int64(), metadata=extension), pa.array([1] * 4))
    pandas = {
        b"pandas": b'{"index_columns": [], "columns": [], "creator": {"library": "pyarrow"}}',
        b"pickle": bomb,
        b"PANDAS_ATTRS": bomb,
    }
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, **pandas}), file)
    assert Ledger(directory.place).trainings()["param_planted"].to_pylist() == [1] * 4
    assert query_all([Ledger(directory.place)], "select param_planted from trials").to_pylist() == [
        {"param_planted": 1}
    ]
    opened = open_sweep(directory.place)
    assert opened.trainings().num_rows == 4
    assert not went_off.exists()
