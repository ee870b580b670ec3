"""Files that a sweep names by path, such as corpora: it goes on with the same files alone."""

import hashlib
import os
import signal
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.errors import UserError
from tests.fault import sweeps

pytestmark = [pytest.mark.usefixtures("no_mlflow"), pytest.mark.slow]
MINE = """
from dataclasses import dataclass
from attnsweep import Sweep, parameter
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters

@dataclass(frozen=True, kw_only=True)
class Parameters(CategoryPairsParameters):
    notes: str = parameter("", "a file")

    @classmethod
    def pinned(cls, values):
        return {"notes": values["notes"]}

class Own(CategoryPairs):
    name = "own"
    parameters = Parameters

def sweep():
    space = {"n_steps": 20, "n_categories": 3, "n_positions": 4, "notes": "NOTES"}
    return Sweep(name="own", workload="mine.py:Own", sampler="random", trials=2, replicates=4, space=space)
"""


@pytest.mark.scale
def test_a_sweep_goes_on_with_the_files_that_it_began_with_alone(no_mlflow: None, tmp_path: Path) -> None:
    path, notes, mine = tmp_path / "s", tmp_path / "notes.txt", tmp_path / "mine.py"
    mine.write_text(MINE.replace("NOTES", str(notes)))
    notes.write_text("as it was")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SweepLoop, "_commit", sweeps.after_commit(1, lambda: os.kill(os.getpid(), signal.SIGINT)))
        assert not sweeps.run(load_sweep(str(mine)), path, pack_size=4).finished
    sha256 = hashlib.sha256(b"as it was").hexdigest()
    assert SweepDirectory.open(path).files == {str(notes): sha256}
    notes.write_text("changed")
    with pytest.raises(
        UserError, match=f"got 'the file {notes}, which has changed', expected the file .* {sha256[:12]}"
    ):
        sweeps.resume(path)
    notes.unlink()
    with pytest.raises(
        UserError, match=f"got 'a missing file {notes}', expected .*; restore the file and run attnsweep resume"
    ):
        sweeps.resume(path)
    assert Ledger(path).trainings().num_rows == 4
    notes.write_text("as it was")
    assert sweeps.resume(path).finished
