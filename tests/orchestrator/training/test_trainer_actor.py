"""A user's workload in another process, which has neither its files nor its folder."""

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray import cloudpickle

from attnsweep.orchestrator.training.trainer_actor import Shipment
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.testing import defaults

MINE = """
from dataclasses import dataclass
from functools import cache

from attnsweep import parameter
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.files import given_file
from pathlib import Path

@dataclass(frozen=True, kw_only=True)
class Mine(CategoryPairsParameters):
    notes: str = parameter("", "a file")

@cache
def text(path):
    return given_file(Path(path), "notes", "a file").read_text()

class Own(CategoryPairs):
    name = "own"
    parameters = Mine

    def build(self, parameters):
        from near_by import law
        assert (law.TOTAL, text(parameters.notes)) == (3, "carried")
        return super().build(parameters)
"""
RECEIVER = """
import pickle, sys
shipment, parameters = pickle.load(open(sys.argv[1], "rb")), pickle.load(open(sys.argv[2], "rb"))
assert type(parameters) is shipment.workload.parameters
shipment.workload.build(parameters)
print(type(parameters).__module__)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A user's file, modules beside it, and a file of data, all gone to another name once they are loaded."""
    place = tmp_path / "mine"
    (place / "near_by").mkdir(parents=True)
    (place / "mine.py").write_text(MINE)
    (place / "near_by" / "law.py").write_text("TOTAL = 3")
    (place / "notes.txt").write_text("carried")
    yield place
    for name in ("near_by", "near_by.law"):
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_code_and_files_arrive_where_the_folder_is_not(folder: Path, tmp_path: Path) -> None:
    workload, notes = load_workload(f"{folder}/mine.py:Own"), str(folder / "notes.txt")
    (tmp_path / "shipment").write_bytes(cloudpickle.dumps(Shipment(workload, [notes])))
    (tmp_path / "parameters").write_bytes(pickle.dumps(defaults(workload, notes=notes)))
    folder.rename(tmp_path / "gone")
    command: list[str | Path] = [sys.executable, "-c", RECEIVER, tmp_path / "shipment", tmp_path / "parameters"]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=120, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.strip() == type(workload).__module__
