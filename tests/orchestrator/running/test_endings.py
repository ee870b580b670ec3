"""Whatever fails while a run begins, trains or ends: its trainers end, MLflow is closed, and the sweep is free."""

from pathlib import Path
from typing import Any

import pytest

from attnsweep.orchestrator.running import one_run
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.study import Study
from attnsweep.orchestrator.storage.errors import SweepError
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.projection import Projection
from attnsweep.orchestrator.training.local_pool import LocalPool
from tests.fault import sweeps

SPEC = sweeps.small_sweep(trials=2, replicates=2)
FAULT, CTRL_C = SweepError("enough", "here"), KeyboardInterrupt()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "fault", "is_projected"),
    [
        (SweepDirectory, "record_as", FAULT, False),
        (one_run, "Projection", CTRL_C, False),
        (SweepLoop, "__init__", FAULT, True),
        (SweepLoop, "resume", CTRL_C, True),
        (SweepLoop, "run", CTRL_C, True),
        (SweepDirectory, "record_run", FAULT, True),
        (Projection, "end_soon", CTRL_C, True),
        (one_run, "summarize", FAULT, True),
    ],
)
def test_all_that_a_run_opened_is_closed(
    owner: Any,
    name: str,
    fault: BaseException,
    is_projected: bool,
    no_mlflow: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[str] = []

    def fail(*_: object, **__: object) -> None:
        raise fault

    def note(kind: type[Any], what: str) -> None:
        close = kind.close

        def note_and_close(*arguments: object) -> None:
            closed.append(what)
            close(*arguments)

        monkeypatch.setattr(kind, "close", note_and_close)

    with monkeypatch.context() as patched:
        note(LocalPool, "trainers")
        note(Projection, "MLflow")
        patched.setattr(owner, name, fail)
        with pytest.raises(type(fault)):
            sweeps.run(SPEC, tmp_path / "s")
    assert closed == ["trainers", *(["MLflow"] if is_projected else [])]
    monkeypatch.undo()
    assert sweeps.resume(tmp_path / "s").finished
    assert len(sweeps.outcomes(tmp_path / "s")) == 4
    assert all(value is not None for *_, value in sweeps.told(tmp_path / "s"))
    assert Study(SweepDirectory.open(tmp_path / "s")).n_left == 0
