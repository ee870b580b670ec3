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
from attnsweep.orchestrator.running.loop import Found, SweepLoop
from attnsweep.orchestrator.running.study import Journal, OptunaStudy, has_study, open_study, read_trials
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training import trainer
from attnsweep.orchestrator.training.local_pool import LocalPool
from attnsweep.orchestrator.training.messages import CHECKPOINT_SECONDS, RunContext
from attnsweep.search_spaces import LossQuantile, Pruner, Sweep
from attnsweep.workloads.registry import load_workload
from tests.orchestrator.small_sweep import small_sweep
from tests.orchestrator.storage.object_store import new_prefix, object_store

SPECS = {
    "random": small_sweep("killed", sampler="random", trials=4, replicates=2),
    "tpe": small_sweep("killed", sampler="tpe", trials=13, replicates=1),
    "pruned": small_sweep(
        "killed",
        sampler="random",
        trials=4,
        replicates=2,
        objective=LossQuantile(),
        pruner=Pruner("threshold", upper=1.0),
    ),
}
SPECS["halving"] = SPECS["pruned"].but(
    trials=8, pruner=Pruner("successive_halving", min_resource=2, reduction_factor=2)
)
PACK_SIZE = 4


class _Kill(BaseException):
    """Simulates SIGKILL: no code catches it."""


@pytest.fixture(autouse=True)
def _short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "SLICE_SECONDS", 0.0)


def _create(path: PlaceName, spec: Sweep) -> SweepDirectory:
    declared = load_workload(spec.workload).parameters.declared()
    return SweepDirectory.create(
        path, spec, {name: each.default for name, each in declared.items() if name not in spec.space}
    )


def _go_on(directory: SweepDirectory, checkpoint_seconds: float = CHECKPOINT_SECONDS) -> Found:
    """Runs the sweep until the kill, without the writes at the end of a run, which a real kill would prevent."""
    workload = load_workload(directory.spec.workload)
    with closing(LedgerWriter(directory.place, schemas_of(workload), directory.spec_sha256)) as writer:
        study = open_study(directory)
        pool = LocalPool(workload, RunContext(directory.sweep), checkpoint_seconds=checkpoint_seconds)
        loop = SweepLoop(directory, workload, study, writer, pool, pack_size=PACK_SIZE)
        found = loop.resume(Ledger(directory.place).trainings())
        assert loop.run(lambda: False)
        study.save()
        return found


def _rows(directory: SweepDirectory) -> list[dict[str, Any]]:
    columns = ["trial", "replicate", "training_id", "outcome", "eval_loss", "param_init_sigma", "param_learning_rate"]
    rows = Ledger(directory.place).trainings(columns=columns).to_pylist()
    return sorted(rows, key=lambda row: (row["trial"], row["replicate"]))


def _told(directory: SweepDirectory) -> list[Any]:
    trials = read_trials(directory) if has_study(directory.spec) else []
    return [(trial.params, trial.state, trial.value, trial.intermediate_values) for trial in trials]


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
            (entries,) = arguments
            if half := entries[: len(entries) // 2]:
                real(self, half)
            with self._path.open("a") as file:
                file.write('{"op_code":4,"worker_id":"')
        raise _Kill

    patch.setattr(owner, name, dies)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SweepDirectory]:
    found = {name: _create(tmp_path_factory.mktemp("undisturbed") / "s", spec) for name, spec in SPECS.items()}
    for directory in found.values():
        _go_on(directory)
    assert [len(_rows(directory)) for directory in found.values()] == [8, 13, 8, 16]
    return found


POINTS = [
    *(("tpe", Journal, "append_logs", call, "within") for call in range(7)),
    *(("tpe", Journal, "append_logs", call, "after") for call in (0, 2, 5)),
    *(("tpe", OptunaStudy, "ask", call, "before") for call in (0, 3, 11)),
    *(("tpe", OptunaStudy, "tell", call, "before") for call in (0, 5, 11)),
    ("tpe", OptunaStudy, "tell", 11, "after"),
    ("tpe", LedgerWriter, "commit", 3, "after"),
    *(("pruned", OptunaStudy, "report", call, "after") for call in (1, 4)),
    ("pruned", Journal, "append_logs", 3, "within"),
    ("pruned", LedgerWriter, "commit", 0, "before"),
    ("pruned", LedgerWriter, "commit", 1, "after"),
    *(("halving", OptunaStudy, "report", call, "after") for call in (1, 12)),
    ("halving", LedgerWriter, "commit", 1, "before"),
    ("halving", LedgerWriter, "commit", 1, "after"),
    ("random", Checkpoints, "put", 0, "before"),
    ("random", Checkpoints, "put", 3, "after"),
    ("random", LedgerWriter, "commit", 0, "before"),
    ("random", LedgerWriter, "commit", 0, "after"),
    ("random", LedgerWriter, "commit", 1, "after"),
    ("random", Checkpoints, "remove", 0, "after"),
]
"""The sweep, and the call of a method up to then. Of the journal's writes, 0 and 1 open the study."""


@pytest.mark.parametrize(
    ("name", "owner", "method", "call", "when"), POINTS, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_sweep_killed_there_ends_as_if_undisturbed(
    name: str, owner: type, method: str, call: int, when: str, undisturbed: dict[str, SweepDirectory], tmp_path: Path
) -> None:
    directory = _create(tmp_path / "s", SPECS[name])
    with pytest.MonkeyPatch.context() as patch:
        _kill_at(owner, method, call, when, patch)
        with pytest.raises(_Kill):
            _go_on(directory, 0.0 if owner is Checkpoints else CHECKPOINT_SECONDS)
    _go_on(directory)
    assert _rows(directory) == _rows(undisturbed[name])
    assert _told(directory) == _told(undisturbed[name])


@pytest.fixture(params=["directory", "object store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PlaceName]:
    if request.param == "directory":
        yield tmp_path / "s"
        return
    with object_store():
        yield new_prefix()


@pytest.mark.parametrize("name", ["random", "tpe"])
def test_a_checkpoint_is_used_because_its_trials_are_known(name: str, place: PlaceName) -> None:
    directory = _create(place, SPECS[name])
    with pytest.MonkeyPatch.context() as patch:
        _kill_at(Checkpoints, "put", 0, "after", patch)
        with pytest.raises(_Kill):
            _go_on(directory, 0.0)
    found = _go_on(directory)
    n_begun = {"random": PACK_SIZE, "tpe": 10}[name]
    assert (found.n_kept, found.n_begun, found.n_from_checkpoint) == (0, n_begun, PACK_SIZE)
