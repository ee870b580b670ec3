"""A workload that breaks its contract in some trainings: these fail with their errors, and the sweep continues."""

from pathlib import Path

import pytest

from attnsweep.orchestrator.analysis.results import read_results
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.vocabulary import NEGATIVE_LOSS
from tests.orchestrator.trained_sweep import records, trained_sweep

FAULTY = r"""
from dataclasses import dataclass
import numpy as np
import torch
from attnsweep import Categorical, Rule, Sweep, VerdictTable
from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.category_pairs.outcomes import REDUCED
from attnsweep.workloads.parameters import parameter

FAULTS = ("none", "surrogate", "unspeakable", "panic", "misshapen", "complex", "negative")

class UnspeakableError(Exception):
    def __str__(self):
        raise RuntimeError("no words")

class PanicException(BaseException):
    pass

@dataclass(frozen=True, kw_only=True)
class Parameters(CategoryPairsParameters):
    fault: str = parameter("none", "what it does wrong", choices=FAULTS, static=True)

def misshapen(parameters, evidence):
    none = np.zeros(evidence.metrics["eval_loss"].shape, dtype=bool)
    return none[:, :1] if parameters.fault == "misshapen" else none

class Faulty(CategoryPairs):
    name = "faulty"
    parameters = Parameters
    verdicts = VerdictTable((Rule(outcome="runaway", when=misshapen), *REDUCED.rows))

    def build(self, parameters):
        match parameters.fault:
            case "surrogate":
                raise ValueError("\ud800")
            case "unspeakable":
                raise UnspeakableError
            case "panic":
                raise PanicException("index out of bounds")
        module = super().build(parameters)
        module.fault = parameters.fault
        return module

    def evaluate(self, module, batch):
        loss = super().evaluate(module, batch)["eval_loss"]
        match module.fault:
            case "complex":
                loss = torch.complex(loss, loss)
            case "negative":
                loss = loss - 5.0
        return {"eval_loss": loss}

def sweep():
    return Sweep(
        name="faulty", workload="faulty.py:Faulty", sampler="grid", trials=len(FAULTS), replicates=1,
        space={"fault": Categorical(choices=FAULTS), "n_steps": 6, "n_categories": 3, "n_positions": 4},
    )
"""

ERRORS = {
    "surrogate": "ValueError: \\ud800",
    "unspeakable": "UnspeakableError: <exception str() failed>",
    "panic": "PanicException: index out of bounds",
    "misshapen": "the outcome runaway: got a bool array of the shape (1, 1), expected a bool array of the shape (1, ",
    "complex": "TypeError: eval_loss: got complex128 of shape () for each training, expected one real number",
}


@pytest.mark.slow
def test_a_training_that_breaks_the_contract_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    directory = trained_sweep(tmp_path / "s", load_sweep(str(tmp_path / "faulty.py")))
    assert directory.finished
    rows = {row["param_fault"]: row for row in records(directory)}
    for fault, error in ERRORS.items():
        assert rows[fault]["outcome"] == "failed"
        assert error in rows[fault]["error"].splitlines()[-1]
    assert (rows["negative"]["outcome"], rows["negative"]["diverged_step"]) == ("diverged", 0)
    assert rows["negative"]["outcome_detail"] == NEGATIVE_LOSS
    results = read_results(Ledger(directory.place).connect(), directory.spec)
    assert results.n_negative == 1
    assert rows["none"]["outcome"] == "plateau"
    assert rows["negative"]["error"] is rows["none"]["error"] is None
