"""The example workloads of docs/examples: they are sweeps that fit, and they hold what the engine relies on."""

from pathlib import Path
from typing import Any

import pytest

from attnsweep.search_spaces.loading import load_sweep
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.testing import check_workload, defaults

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
FILES = sorted(path.name for path in EXAMPLES.glob("*.py"))
FEW_STEPS: dict[str, Value] = {"optimizer": "lbfgs", "n_steps": 2}
"""L-BFGS has no block engine, whose tracing takes seconds."""


@pytest.fixture(params=FILES)
def workload(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Workload[Any]:
    monkeypatch.chdir(EXAMPLES)
    sweep = load_sweep(request.param)
    found = load_workload(sweep.workload)
    check_sweep(sweep, found.parameters)
    assert f"{found.name}.py" == request.param
    return found


@pytest.mark.sample("first_word.py")
@pytest.mark.slow
def test_an_example_passes_the_conformance_suite(workload: Workload[Any]) -> None:
    check_workload(workload, [defaults(workload, **FEW_STEPS, init_sigma=sigma) for sigma in (0.1, None)])
