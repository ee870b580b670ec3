"""docs/mission.md: what TPE and the sampler `boundary` find on category pairs that random trials do not.

Axes: T trial.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.studies.mission_pairs import Trials, moved, one_border
from attnsweep.reproduction.swept import swept
from attnsweep.search_spaces.loading import load_sweep

N_TRIALS = 64
"""Of each sampler; random trials are the first of `mission_pairs`."""
_N_LAST = 16
"""Trials that show what the samplers had learned: TPE draws its first 52 here as the random sampler does."""
_NEAR = 2.0
"""A trial is near the border if its sigma is within this factor."""


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains 64 trials x 4 seeds of full models with each of three samplers."""
    drawn = load_sweep("mission_pairs").but(trials=N_TRIALS)
    sweeps = {
        "random": swept("mission_pairs", directory, console, "auto", changed=drawn),
        "tpe": swept("mission_pairs_tpe", directory, console, "auto"),
        "boundary": swept("mission_pairs_boundary", directory, console, "auto"),
    }
    return Comparison(
        title="Initialization, epsilon, attention's scale and precision: what do TPE and boundary find?",
        source="attnsweep, docs/mission.md",
        rows=[row for sampler, sweep in sweeps.items() for row in compare(sweep, directory, sampler).rows],
        notes=[
            f"The first {N_TRIALS} trials of each, with four trainings. Near the border: within a factor of {_NEAR:g}, "
            "both moved to float64 and scale one by the derived factors of mission-pairs."
        ],
    )


def compare(sweep: SweepDirectory, directory: Path, sampler: str) -> Comparison:
    """Reads a finished sweep over the space of `mission_pairs`."""
    del directory
    rows = [replace(row, name=f"{sampler}: {row.name}") for row in rows_of(Trials.read(sweep, N_TRIALS))]
    return Comparison(title=sampler, source="attnsweep, docs/mission.md", rows=rows)


def rows_of(trials: Trials) -> list[ComparedValue]:
    """What the trials found, in the order in which they were drawn."""
    border = one_border(trials)
    counts = {
        "no training ends at the zero": trials.n_zero == 0,
        "all trainings are solved": trials.n_solved == trials.n,
    }
    last = slice(-_N_LAST, None)
    away = None if isinstance(border.ours, str) else np.abs(np.log(moved(trials) / border.ours))
    if away is not None:
        counts["near the border"] = away < np.log(_NEAR)
    rows = [
        ComparedValue(
            name=f"trials of {len(trials.n)}, and of the last {_N_LAST}: {name}",
            published=None,
            ours=f"{holds.sum()}, {holds[last].sum()}",
        )
        for name, holds in counts.items()
    ]
    if away is not None:
        name = f"median distance of the last {_N_LAST} from the border, decades"
        rows.append(ComparedValue(name=name, published=None, ours=float(np.median(away[last])) / np.log(10)))
    return [*rows, border]
