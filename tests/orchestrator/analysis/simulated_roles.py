"""Whether the curve of emergence covers the truth, for roles that come and go at random.

    python -m tests.orchestrator.analysis.simulated_roles        prints the table of docs/roles.md

At each probe a layer has the role with a chance of its own trial, whatever it had before. The truth is exact then: of
all strings of n probes, those without two successive ones with the role are counted by a recursion.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.role_emergence import RoleHistory, role_histories
from attnsweep.orchestrator.ledger.reader import Ledger
from tests.orchestrator.head_rows import head_rows, sweep_with_heads
from tests.orchestrator.small_sweep import small_sweep, trial_rows

STEPS = (0, 1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, kw_only=True)
class Design:
    """What is simulated.

    Attributes:
        chances: By which a trial's trainings have the role at a probe; each trial draws one.
        n_probes: Of a trial's trainings; each trial draws one.
        n_trials, replicates: Of one sweep.
    """

    chances: tuple[float, ...] = (0.5,)
    n_probes: tuple[int, ...] = (3, 7)
    n_trials: int = 40
    replicates: int = 1


@dataclass(frozen=True)
class Coverage:
    """At the last point of the curve: the truth, the mean estimate, and how often the interval covers the truth."""

    truth: float
    mean: float
    covered: float


def emerged_by(chance: float, n_probes: int) -> float:
    """The chance that two of the first `n_probes` successive probes have the role."""
    ends_without, ends_with = 1.0, 0.0
    for _ in range(n_probes):
        ends_without, ends_with = (ends_without + ends_with) * (1 - chance), ends_without * chance
    return 1.0 - ends_without - ends_with


def simulate(folder: Path, design: Design, n_sweeps: int, seed: int = 0) -> Coverage:
    """Reads the histories of many sweeps from one ledger, and estimates each one's curve."""
    history = _history(folder, design, n_sweeps, np.random.default_rng(seed))
    of_sweep = history.trial[history.is_followed] // design.n_trials
    ends = [history.onsets.at(of_sweep == sweep).curve(once_per_trial=False)[-1] for sweep in range(n_sweeps)]
    truth = float(np.mean([emerged_by(chance, max(design.n_probes)) for chance in design.chances]))
    return Coverage(
        truth, float(np.mean([end.share for end in ends])), float(np.mean([e.low <= truth <= e.high for e in ends]))
    )


def _history(folder: Path, design: Design, n_sweeps: int, rng: np.random.Generator) -> RoleHistory:
    trainings, heads = [], []
    for trial in range(n_sweeps * design.n_trials):
        chance, n_probes = rng.choice(design.chances), rng.choice(design.n_probes)
        steps = STEPS[:n_probes]
        rows = trial_rows(trial, ["plateau"] * design.replicates, n_steps=steps[-1], param_n_steps=steps[-1])
        trainings.append(rows)
        for row in rows:
            has = rng.random(n_probes) < chance
            heads += head_rows(row, {(0, 0): _letters(has)}, steps)
    sweep_with_heads(folder, small_sweep("r", workload="translation"), trainings, heads)
    with Ledger(folder).connect() as connection:
        [history] = [each for each in role_histories(connection) if each.role == "positional"]
    return history


def _letters(has: NDArray[np.bool_]) -> str:
    return "".join("p" if each else "." for each in has)


def _table(designs: Sequence[Design], n_sweeps: int) -> str:
    lines = ["| chance of the role | probes | trials x trainings | truth | mean estimate | covered |", "|---" * 6 + "|"]
    for number, design in enumerate(designs):
        with tempfile.TemporaryDirectory() as folder:
            found = simulate(Path(folder) / "s", design, n_sweeps, seed=number)
        cells = (
            *(" or ".join(map(str, each)) for each in (design.chances, design.n_probes)),
            f"{design.n_trials} x {design.replicates}",
            *(f"{value:.3f}" for value in (found.truth, found.mean, found.covered)),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    designs = (
        Design(n_probes=(7,)),
        Design(),
        Design(n_probes=(2, 7)),
        Design(chances=(0.1,)),
        Design(chances=(0.2, 0.8), replicates=4),
        Design(chances=(0.2, 0.8), n_probes=(2, 7), n_trials=16, replicates=8),
    )
    sys.stdout.write(_table(designs, n_sweeps=500))
