"""Trainings that raise, return NaN or exhaust memory: each affects only itself; too many stop the sweep."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from attnsweep import Int, Sweep
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.errors import SweepError
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.loading import load_sweep
from tests.fault import sweeps

pytestmark = pytest.mark.usefixtures("no_mlflow")

FRAGILE = """
from dataclasses import dataclass
import numpy as np
import torch
from attnsweep import Int, Rule, Sweep, VerdictTable
from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.category_pairs.outcomes import REDUCED
from attnsweep.workloads.parameters import parameter

@dataclass(frozen=True, kw_only=True)
class Parameters(CategoryPairsParameters):
    fate: int = parameter(0, "1: memory for four lanes, 2, 4, 5: raises, 3: is NaN, 6: raises later", low=0, high=6)

class Panic(BaseException):
    pass

def _raises_later(parameters, evidence):
    if parameters.fate == 6 and np.isfinite(evidence.metrics["eval_loss"][:, 1:]).any():
        raise ZeroDivisionError("planted")
    return np.zeros(evidence.metrics["eval_loss"].shape, bool)

class Fragile(CategoryPairs):
    name = "fragile"
    parameters = Parameters

    def build(self, parameters):
        if parameters.fate == 2:
            raise ZeroDivisionError("planted")
        if parameters.fate == 4:
            raise ValueError("no text that UTF-8 has: \\ud800")
        if parameters.fate == 5:
            raise Panic("as of an extension module written in Rust")
        return super().build(parameters)

    def initial(self, module, lanes):
        fates = [training.parameters.fate for training in lanes.trainings]
        if 1 in fates and len(fates) > 4:
            torch.empty(2**60, dtype=torch.uint8)
        state = super().initial(module, lanes)
        for lane, fate in enumerate(fates):
            if fate == 3:
                next(iter(state.values()))[lane] = torch.nan
        return state

    verdicts = VerdictTable((Rule(outcome="runaway", when=_raises_later), *REDUCED.rows))

def sweep():
    return Sweep(name="fragile", workload="fragile.py:Fragile", sampler="grid", trials=4, replicates=4,
                 space={"fate": Int(low=0, high=3, points=4), "n_steps": 20, "n_categories": 3, "n_positions": 4})
"""


@pytest.fixture
def spec(tmp_path: Path) -> Sweep:
    file = tmp_path / "fragile.py"
    file.write_text(FRAGILE)
    return load_sweep(str(file))


def test_each_fate_stays_with_its_own_trainings(spec: Sweep, tmp_path: Path) -> None:
    spec = spec.but(space={**spec.space, "fate": Int(low=0, high=5, points=6)}, trials=6)
    report = sweeps.run(spec, tmp_path / "s", pack_size=16)
    rows = Ledger(tmp_path / "s").trainings()
    assert report.finished
    assert rows.num_rows == 24
    failed = rows.filter(pc.field("outcome") == "failed").sort_by("param_fate")
    assert failed["param_fate"].to_pylist() == [2] * 4 + [4] * 4 + [5] * 4
    last_lines = ["ZeroDivisionError: planted", r"no text that UTF-8 has: \ud800", "Panic: as of an extension module"]
    errors = failed["error"].to_pylist()
    assert all(line in error for line, error in zip(np.repeat(last_lines, 4), errors, strict=True))
    assert failed["host"].null_count == failed["device"].null_count == 0
    assert rows.filter(pc.field("outcome") != "failed")["error"].null_count == 12
    by_fate = {
        fate: rows.filter((pc.field("param_fate") == fate) & (pc.field("outcome") != "failed")) for fate in range(4)
    }
    assert set(by_fate[3]["outcome"].to_pylist()) == {"diverged"}
    assert "diverged" not in by_fate[0]["outcome"].to_pylist() + by_fate[1]["outcome"].to_pylist()
    # The pack that ran out of memory was halved until it fitted.
    assert max(by_fate[1]["pack_size"].to_pylist()) <= 4


def test_a_sweep_that_only_fails_stops_early_and_says_why(spec: Sweep, tmp_path: Path) -> None:
    spec = spec.fix({"fate": 6}).but(sampler="random", replicates=400)
    with pytest.raises(SweepError):
        sweeps.run(spec, tmp_path / "s", pack_size=4)
    assert Ledger(tmp_path / "s").trainings().num_rows == 16
    assert not SweepDirectory.open(tmp_path / "s").finished


def test_too_many_failures_stop_the_sweep_which_can_be_resumed(spec: Sweep, tmp_path: Path) -> None:
    with pytest.raises(SweepError):
        sweeps.run(spec, tmp_path / "s", pack_size=1, max_failures=2)
    assert sum(row["outcome"] == "failed" for row in sweeps.outcomes(tmp_path / "s")) == 3
    assert sweeps.resume(tmp_path / "s", max_failures=4).finished
    assert len(sweeps.outcomes(tmp_path / "s")) == 16
