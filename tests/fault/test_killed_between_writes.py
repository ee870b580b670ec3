"""A driver killed before, within and after each of its writes: no row twice, none lost, no checkpoint wasted.

The sweep trains in this process. A kill is an exception that nothing between it and the test catches or answers.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.schema import schemas_of
from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.running.checkpoints import Checkpoints
from attnsweep.orchestrator.running.journal import JournalFile, TrialEntries
from attnsweep.orchestrator.running.loop import Found, SweepLoop
from attnsweep.orchestrator.running.study import Study, read_trials
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training import trainer
from attnsweep.orchestrator.training.local_pool import LocalPool
from attnsweep.orchestrator.training.messages import CHECKPOINT_SECONDS, RunContext
from attnsweep.search_spaces import Sweep
from attnsweep.workloads.registry import load_workload
from tests.orchestrator.small_sweep import small_sweep
from tests.orchestrator.storage.object_store import new_prefix, object_store

SPEC = small_sweep("killed", sampler="random", trials=4, replicates=2)
PACK_SIZE = 4


class _Kill(BaseException):
    """Simulates SIGKILL: no code catches it."""


@pytest.fixture(autouse=True)
def _short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "SLICE_SECONDS", 0.0)


def _create(path: PlaceName, spec: Sweep = SPEC) -> SweepDirectory:
    declared = load_workload(spec.workload).parameters.declared()
    return SweepDirectory.create(
        path, spec, {name: each.default for name, each in declared.items() if name not in spec.space}
    )


def _go_on(directory: SweepDirectory, checkpoint_seconds: float = CHECKPOINT_SECONDS) -> Found:
    """Runs the sweep until the kill, without the writes at the end of a run, which a real kill would prevent."""
    workload = load_workload(directory.spec.workload)
    with closing(LedgerWriter(directory.place, schemas_of(workload), directory.spec_sha256)) as writer:
        study = Study(directory)
        pool = LocalPool(workload, RunContext(directory.sweep), checkpoint_seconds=checkpoint_seconds)
        loop = SweepLoop(directory, workload, study, writer, pool, pack_size=PACK_SIZE, followers=())
        found = loop.resume(Ledger(directory.place).trainings())
        assert loop.run(lambda: False)
        study.save()
        return found


def _rows(directory: SweepDirectory) -> list[dict[str, Any]]:
    columns = ["trial", "replicate", "training_id", "outcome", "eval_loss", "param_init_sigma", "param_learning_rate"]
    rows = Ledger(directory.place).trainings(columns=columns).to_pylist()
    return sorted(rows, key=lambda row: (row["trial"], row["replicate"]))


def _told(directory: SweepDirectory) -> list[float | None]:
    return [trial.value for trial in read_trials(directory)]


def _kill_at(owner: type, name: str, call: int, when: str, patch: pytest.MonkeyPatch) -> None:
    """Kills at a call of a method (the first is 0): before it, after it, or within it, after a partial write."""
    real = getattr(owner, name)
    calls = iter(range(call))

    def dies(self: Any, *arguments: Any, **named: Any) -> Any:
        if next(calls, None) is not None:
            return real(self, *arguments, **named)
        if when == "after":
            real(self, *arguments, **named)
        if when == "within":
            (lines,) = arguments
            half = "\n".join(lines)[: len("\n".join(lines)) // 2].split("\n")
            real(self, half[:-1])
            with self._path.open("a") as file:
                file.write(half[-1])
        raise _Kill

    patch.setattr(owner, name, dies)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    directory = _create(tmp_path_factory.mktemp("undisturbed") / "s")
    _go_on(directory)
    assert len(_rows(directory)) == 8
    return directory


POINTS = [
    (JournalFile, "append", 0, "within"),
    (JournalFile, "append", 1, "within"),
    (JournalFile, "append", 1, "after"),
    (JournalFile, "append", 2, "within"),
    (TrialEntries, "create", 1, "after"),
    (TrialEntries, "set_trial_state_values", 1, "before"),
    (Checkpoints, "put", 0, "before"),
    (Checkpoints, "put", 3, "after"),
    (LedgerWriter, "commit", 0, "before"),
    (LedgerWriter, "commit", 0, "after"),
    (LedgerWriter, "commit", 1, "after"),
    (Checkpoints, "remove", 0, "after"),
    (Study, "tell", 0, "before"),
    (Study, "tell", 3, "after"),
]
"""The calls of each method up to then. Of the journal's writes, 0 opens the study and 1 is the first commit's."""


@pytest.mark.parametrize(
    ("owner", "name", "call", "when"),
    POINTS,
    ids=[f"{point[0].__name__}.{point[1]}-{point[2]}-{point[3]}" for point in POINTS],
)
def test_a_sweep_killed_there_ends_as_if_undisturbed(
    owner: type, name: str, call: int, when: str, undisturbed: SweepDirectory, tmp_path: Path
) -> None:
    directory = _create(tmp_path / "s")
    with pytest.MonkeyPatch.context() as patch:
        _kill_at(owner, name, call, when, patch)
        with pytest.raises(_Kill):
            _go_on(directory, 0.0 if owner is Checkpoints else CHECKPOINT_SECONDS)
    _go_on(directory)
    assert _rows(directory) == _rows(undisturbed)
    assert _told(directory) == _told(undisturbed)


@pytest.fixture(params=["directory", "object store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PlaceName]:
    if request.param == "directory":
        yield tmp_path / "s"
        return
    with object_store():
        yield new_prefix()


def test_a_checkpoint_is_used_because_the_study_knows_its_trials(place: PlaceName) -> None:
    directory = _create(place)
    with pytest.MonkeyPatch.context() as patch:
        _kill_at(Checkpoints, "put", 0, "after", patch)
        with pytest.raises(_Kill):
            _go_on(directory, 0.0)
    found = _go_on(directory)
    # The trainings of the next pack had been asked for ahead.
    assert (found.n_kept, found.n_queued, found.n_from_checkpoint) == (0, 2 * PACK_SIZE, PACK_SIZE)
