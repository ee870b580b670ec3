"""A sweep with made-up rows that many questions are asked of."""

from typing import Any

import numpy as np
import pytest

from attnsweep import open_sweep
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from tests.orchestrator.small_sweep import Rows, small_sweep, sweep_on_disk, trial_rows


def random_trials(n: int, **given: Any) -> list[Rows]:
    """Stuck if sigma is small; some solve early, some diverge earlier, the others end at their budget of 8 steps."""
    rng, trials = np.random.default_rng(1), []
    for number in range(n):
        sigma = float(10 ** rng.uniform(-4, 0))
        chance = [0.2, 0.6, 0.1, 0.1] if sigma < 0.01 else [0.6, 0.1, 0.1, 0.2]
        rows = trial_rows(
            number, rng.choice(["solved", "marginal", "diverged", "plateau"], 4, p=chance).tolist(),
            param_init_sigma=sigma, param_n_steps=8, param_learning_rate=float(10 ** rng.uniform(-3, -1)),
            onset_step=4, before_onset_step=3, **given,
        )  # fmt: skip
        steps = {"solved": 4, "diverged": 3}
        trials.append([row | {"n_steps": steps.get(row["outcome"], 8)} for row in rows])
    return trials


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepData:
    path = tmp_path_factory.mktemp("sweeps") / "one"
    sweep_on_disk(path, small_sweep("one", trials=40), *random_trials(40))
    return open_sweep(path)
