"""Compares where trainings get stuck on several problems from the literature, with one sweep of each problem over
initialization, epsilon, attention scale and structure.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.rows import rate_row, rate_text
from attnsweep.reproduction.trained import swept
from attnsweep.search_spaces.dimensions import Categorical, Dimension, Float
from attnsweep.search_spaces.sweep import Sweep

TRIALS, REPLICATES = 32, 2
_SIGMA = Float(low=3e-3, high=1.0, log=True)
_EPS = Float(low=1e-6, high=1.0, log=True)
_SCALE = Float(low=0.1, high=10.0, log=True)
_ALL: Mapping[str, Dimension] = {"init_sigma": _SIGMA, "layer_norm_eps": _EPS, "attention_scale": _SCALE, "norm": "pre"}

SPACES: Mapping[str, Mapping[str, Dimension]] = {
    "modular_addition": {
        **_ALL,
        **{"p": 13, "d_model": 24, "d_ffn": 48, "train_fraction": 0.8, "learning_rate": 1e-2, "n_steps": 400},
        "n_heads": Categorical(choices=(1, 4)),
    },
    "sparse_parity": {
        **{"init_sigma": _SIGMA, "layer_norm_eps": _EPS, "norm": "pre", "n_bits": 10, "k": 2, "n_steps": 2000},
        "width": Categorical(choices=(10, 100)),
    },
    "in_context_regression": {
        **{"init_sigma": Float(low=1e-4, high=1.0, log=True), "attention_scale": _SCALE, "n_steps": 4000},
        "kq": Categorical(choices=("merged", "separate")),
    },
    "markov_chains": {**_ALL, "n_states": 2, "n_context": 24, "n_steps": 300, "n_blocks": Categorical(choices=(1, 2))},
    "abrupt_learning": {**_ALL, "n_steps": 300, "attention": Categorical(choices=("linear", "softmax"))},
    "histogram": {**_ALL, "n_steps": 600, "d_model": Categorical(choices=(4, 12))},
    "sequence_tasks": {**_ALL, "task": "majority", "n_steps": 300, "n_blocks": Categorical(choices=(1, 2))},
}
"""The search space of each problem's sweep. Some sizes are below the published ones, so that two cores suffice."""


def spec_of(problem: str) -> Sweep:
    """Returns the sweep definition of a problem, with its search space from `SPACES`."""
    return Sweep(
        name=f"atlas_{problem}",
        workload=problem,
        space=SPACES[problem],
        sampler="qmc",
        trials=TRIALS,
        replicates=REPLICATES,
    )


def reproduce(directory: Path, console: Console) -> Comparison:
    """Runs a sweep of each problem from the literature, and reports how often its trainings have each outcome."""
    rows: list[ComparedValue] = []
    ends: list[list[str]] = [["problem", "solved", "stuck", "where the others end"]]
    by: list[list[str]] = [["problem", "parameter", "value", "solved (95% interval)"]]
    for problem in SPACES:
        spec = spec_of(problem)
        data = SweepData.open(swept(spec.name, directory, console, changed=spec).place)
        solved = data.stuck_rates(outcome="solved")
        rows.append(rate_row(f"{problem}: solved", solved.overall))
        ends.append([problem, rate_text(solved.overall, 2), rate_text(data.stuck_rates().overall, 2), _others(data)])
        by += [
            [problem, parameter.title, rate_bin.label, rate_text(rate_bin.rate, 2)]
            for parameter in solved.by_parameter
            for rate_bin in parameter.bins
            if rate_bin.rate.n
        ]
    return Comparison(
        title="atlas: where small attention models get stuck, by problem",
        source="attnsweep, docs/atlas.md",
        rows=rows,
        tables=[("how trainings end", ends), ("solved, by parameter", by)],
        notes=[
            f"{TRIALS} configurations by quasi-Monte Carlo x {REPLICATES} seeds each, of sizes for two cores:"
            " a training that is not solved may be slow. Each problem's own page has the published sizes."
        ],
    )


def _others(data: SweepData) -> str:
    """Formats the three most frequent outcomes of a problem's trainings, with `solved` left out: each with its
    `outcome_detail`, if there is one, and its number of trainings."""
    counts: Counter[str] = Counter()
    row: dict[str, Any]
    for row in data.sql("select outcome, outcome_detail from trainings where outcome <> 'solved'").to_pylist():
        counts[" ".join(filter(None, (row["outcome"], row["outcome_detail"] and f"({row['outcome_detail']})")))] += 1
    return ", ".join(f"{name} {n}" for name, n in counts.most_common(3))
