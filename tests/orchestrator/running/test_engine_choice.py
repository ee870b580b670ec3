"""A sweep has one engine: which one it gets, what records it, and what a machine without a compiler says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from attnsweep.orchestrator.inspection.replay import replay
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.engine_choice import engine_for, engine_of_shape
from attnsweep.orchestrator.storage.environment import Environment, versions
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tools import look_back
from attnsweep.search_spaces import Float, Sweep
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.errors import UserError
from tests.compilers import no_compiler
from tests.fault.sweeps import curves, outcomes, resume, run, small_sweep
from tests.refusals import refused

LONG: dict[str, Any] = {"space": {"n_steps": 10_000, "init_sigma": Float(1e-3, 1.0, log=True)}, "trials": 4000}


def _quickstart() -> Sweep:
    return load_sweep("quickstart")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sweep", "trials", "engine"),
    [
        (_quickstart, 128, "compiled"),
        (_quickstart, 12, "eager"),
        (look_back.sweep, 2, "eager"),
        (look_back.sweep, 1000, "compiled"),
    ],
)
def test_a_sweep_is_trained_compiled_from_where_its_trainings_repay_the_compiler(
    compiled: None, sweep: Callable[[], Sweep], trials: int, engine: str
) -> None:
    workload = look_back.look_back() if sweep is look_back.sweep else CategoryPairs()
    assert engine_for(sweep().but(trials=trials), workload, "auto", print)[0] == engine


class Broken(CategoryPairs):
    """A workload whose trainings fail where they are built."""

    def build(self, parameters: CategoryPairsParameters) -> nn.Module:
        raise ValueError(f"broken at {parameters.n_steps} steps")


def test_a_workload_that_fails_is_left_to_its_trainings(compiled: None) -> None:
    assert engine_for(small_sweep(**LONG), Broken(), "auto", print)[0] == "eager"
    with refused("category_pairs", UserError):
        engine_of_shape(Broken(), {})


def test_without_a_compiler_a_long_sweep_says_what_it_misses(without_compiler: None) -> None:
    said: list[str] = []
    assert engine_for(small_sweep(**LONG), CategoryPairs(), "auto", said.append)[0] == "eager"
    assert "no C++ compiler" in said[0]


def test_compiled_steps_that_are_asked_for_need_a_compiler(without_compiler: None, tmp_path: Path) -> None:
    with refused("engine", UserError):
        run(small_sweep(), tmp_path / "s", engine="compiled")
    assert not (tmp_path / "s").exists()


@pytest.mark.slow
def test_a_sweep_compiled_is_replayed_and_resumed_compiled(
    compiled: None, no_mlflow: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = small_sweep(trials=3).fix({"optimizer": "sgd"})
    run(spec, tmp_path / "eager")
    run(spec, tmp_path / "s", engine="compiled", pack_size=7)
    directory = SweepDirectory.open(tmp_path / "s")
    assert directory.engine == "compiled"
    assert [row["outcome"] for row in outcomes(tmp_path / "s")] == [
        row["outcome"] for row in outcomes(tmp_path / "eager")
    ]
    one = Ledger(tmp_path / "s").trainings()["training_id"][4].as_py()
    found = replay(directory, one).deviation
    assert (found.agrees, found.of_losses) == (True, 0.0)
    # By the engine that its row names, whatever the latest one is.
    later = directory.entering(Environment(versions=versions()))
    assert later.engine == "eager"
    again = replay(later, one)
    assert (again.notes, again.deviation.absolute) == ((), 0.0)

    # Half of the rows are lost; they are trained again to the same bits, by the same engine, though nobody names it.
    expected = curves(tmp_path / "s")
    for fragment in sorted((tmp_path / "s" / "trainings").glob("*.parquet"))[1:]:
        fragment.write_bytes(b"")
    resume(tmp_path / "s")
    assert curves(tmp_path / "s") == expected
    assert set(Ledger(tmp_path / "s").trainings()["environment"].to_pylist()) == {directory.environment}

    (tmp_path / "s" / "progress.json").unlink()
    with no_compiler(), refused("engine", UserError):
        resume(tmp_path / "s")
