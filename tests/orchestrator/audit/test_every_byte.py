"""Every byte of a sweep directory is covered by a digest that an audit checks: flipped, it is noticed, by file."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from attnsweep.orchestrator.audit.audit import audit
from attnsweep.orchestrator.audit.check_files import check_files, check_journal, check_stored
from attnsweep.orchestrator.audit.problems import Problem
from attnsweep.orchestrator.inspection.kept_weights import keep_weights
from attnsweep.orchestrator.ledger.fragments import TABLES
from attnsweep.orchestrator.running.session import run_sweep
from attnsweep.orchestrator.storage.place import CHECKPOINTS
from attnsweep.orchestrator.storage.run_records import read_replays
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.errors import UserError

SAMPLE = 12
"""Bytes of each file, beside the first and the last."""
WITHOUT_DIGEST = {"progress.json", "pack_sizes.json"}
"""What is written again and never computed with: see `docs/ledger.md`."""
KINDS = {
    "path": {"sweep.json", "course.json", "replays.json", "study.journal"}
    | {"trainings", "curves", "heads", "code", "checkpoints", "weights"},
}
"""The files that each directory must have, for the test to mean something."""

OWN = """
from attnsweep import Float, Sweep
from attnsweep.workloads.category_pairs import CategoryPairs

class Own(CategoryPairs):
    name = "own"

def sweep():
    space = {"init_sigma": Float(low=1e-3, high=1.0), "n_steps": 4, "n_categories": 3, "n_positions": 4}
    return Sweep(name="own", workload="own.py:Own", sampler="random", trials=2, replicates=2, space=space)
"""


@pytest.fixture(scope="module")
def home(no_mlflow: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small sweeps of a user's file: `0` and `1`."""
    del no_mlflow
    home = tmp_path_factory.mktemp("bytes")
    (home / "own.py").write_text(OWN)
    spec = load_sweep(str(home / "own.py"))
    for seed in (0, 1):
        run_sweep(spec.but(seed=seed), home / str(seed), Resources(local=True), Console(quiet=True))
    return home


def _write_state(path: Path) -> None:
    path.write_bytes(bytes(range(200)))


@pytest.fixture(scope="module")
def path(home: Path) -> Path:
    """A sweep with a checkpoint that a killed driver left, and weights that are kept."""
    directory = SweepDirectory.open(home / "0")
    place = directory.place
    place.make_folders([CHECKPOINTS])
    place.publish("000000-0000-4", {CHECKPOINTS: _write_state})
    keep_weights(directory, [1], print)
    return home / "0"


def _files(path: Path) -> list[Path]:
    files = (file for file in path.rglob("*") if file.is_file() and file.suffix != ".lock")
    return sorted(file for file in files if file.name not in WITHOUT_DIGEST)


def _noticed(path: Path, kind: str) -> str:
    """What the check of one kind of file says of a sweep directory. An audit is made of these.

    Args:
        path: The sweep directory.
        kind: A folder, or a file beside the folders.
    """
    try:
        directory = SweepDirectory.open(path)
        problems: Sequence[Problem] = ()
        if kind in TABLES:
            problems = check_files(directory.place, directory.spec_sha256, finished=True)
        elif kind == "study.journal":
            problems = [problem for check in check_journal(directory, finished=True) for problem in check.problems]
        elif kind in {"course.json", "replays.json"}:
            assert directory.finished
            read_replays(directory)
        elif kind == "code":
            load_workload_of(directory)
        else:
            problems = check_stored(directory)
    except UserError as damage:
        return str(damage)
    return "\n".join(map(str, problems))


def _unnoticed(path: Path, file: Path, places: Iterable[int]) -> list[int]:
    """The places of a file at which a flipped byte is not noticed, or not with the file's name."""
    content = file.read_bytes()
    found = []
    with file.open("r+b", buffering=0) as changed:
        for place in places:
            # A letter of the other case, or another end of a line: what a reader of texts may take for the same.
            mask = 0x07 if content[place] in b"\n" else 0x20
            os.pwrite(changed.fileno(), bytes([content[place] ^ mask]), place)
            if file.name not in _noticed(path, _kind(path, file)):
                found.append(place)
            os.pwrite(changed.fileno(), content[place : place + 1], place)
    return found


def _kind(path: Path, file: Path) -> str:
    return file.name if file.parent == path else file.parent.name


@pytest.mark.slow
@pytest.mark.parametrize("fixture", ["path", "merged"])
def test_a_flipped_byte_is_noticed(fixture: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(fixture)
    assert {_kind(path, file) for file in _files(path)} == KINDS[fixture]
    draws = np.random.default_rng(14)
    for file in _files(path):
        assert _noticed(path, _kind(path, file)) == ""
        n = file.stat().st_size
        assert _unnoticed(path, file, [0, n - 1, *draws.integers(n, size=SAMPLE).tolist()]) == [], file


@pytest.mark.scale
def test_every_flipped_byte_is_noticed(path: Path) -> None:
    for file in _files(path):
        assert _unnoticed(path, file, range(file.stat().st_size)) == [], file


@pytest.mark.slow
@pytest.mark.parametrize("fixture", ["path", "merged"])
def test_an_audit_is_made_of_these_checks(fixture: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(fixture)
    for file in _files(path):
        content = file.read_bytes()
        file.write_bytes(content[:-2] + bytes([content[-2] ^ 0x20]) + content[-1:])
        try:
            found = audit(path)
            assert file.name in "\n".join(map(str, found.problems)), file
            assert found.finished is (None if file.name in ("sweep.json", "course.json") else True)
        finally:
            file.write_bytes(content)
