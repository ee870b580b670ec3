"""Which parameters decide whether a trial is among the best: Optuna's PED-ANOVA on the trials of a ledger.

The importance of a parameter is how much the distribution of its values among the best trials departs from that among
all trials (Pearson's divergence): 0 says that good trials are found wherever one looks along it. It is the parameter's
effect by itself, averaged over the others as they were drawn: one that acts only together with another may show none.
It has no direction and no interval; what chance alone gives is told by shuffling the objective over the trials, 100
times. A sampler that learns has drawn few trials where it is bad, which lowers the importance of what it avoids:
`random` and `qmc` sweeps have no such bias.

Source: Watanabe, Bansal & Hutter 2023, PED-ANOVA (arXiv:2304.10255), as Optuna evaluates it.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
from optuna.distributions import BaseDistribution

from attnsweep.orchestrator.analysis.rates import swept_names
from attnsweep.orchestrator.ledger.sql import param_column
from attnsweep.search_spaces.dimensions import Categorical, Float, Int, Scalar
from attnsweep.search_spaces.objective import objective_value
from attnsweep.search_spaces.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BEST_SHARE, _FEWEST_BEST, _FEWEST_TRIALS = 0.1, 5, 10
"""Optuna advises at least 5 trials among the best."""
_N_SHUFFLES, _SEED = 100, 0


@dataclass(frozen=True, slots=True)
class ParameterImportance:
    """One parameter.

    Attributes:
        parameter: Its name.
        importance: PED-ANOVA's, not scaled to a sum of 1.
        chance: The 95th percentile of the same where the objective is shuffled over the trials.
    """

    parameter: str
    importance: float
    chance: float


@dataclass(frozen=True, slots=True)
class Importance:
    """How much each parameter decides.

    Attributes:
        objective: What makes a trial good: `stuck_rate, to minimize`.
        n_trials, n_best: Trials that count, and the best of them: a tenth or 5, and all that equal
            the last; where that would be all trials, those that are better than the worst.
        parameters: The most important first; empty where `note` says why.
        note: Why there is nothing to tell; else empty.
    """

    objective: str
    n_trials: int
    n_best: int
    parameters: tuple[ParameterImportance, ...]
    note: str

    def to_arrow(self) -> pa.Table:
        """One row per parameter."""
        return pa.table(
            {
                "parameter": pa.array([each.parameter for each in self.parameters], pa.string()),
                "importance": pa.array([each.importance for each in self.parameters], pa.float64()),
                "chance": pa.array([each.chance for each in self.parameters], pa.float64()),
            }
        )

    def plot(self) -> "Figure":
        """Bars, and what chance alone gives."""
        from attnsweep.orchestrator.analysis.figures.answers import importance_figure

        return importance_figure(self)


def importance(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> Importance:
    """The importance of each swept parameter for the sweep's objective, from its ledger: the storage is not opened.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
    """
    names = swept_names(spec)
    columns = "".join(f", any_value({param_column(name)})" for name in names)
    rows = connection.execute(
        f"select list(outcome), list(stuck), list(eval_loss){columns} from trainings where outcome <> 'failed' "
        "group by trial order by trial"
    ).fetchall()
    objective = f"{spec.objective.kind}, to {spec.objective.direction}"
    values = np.array([objective_value(spec.objective, *row[:3]) for row in rows])
    if len(rows) < _FEWEST_TRIALS:
        return Importance(objective, len(rows), 0, (), f"{len(rows)} trials are too few: {_FEWEST_TRIALS} at least")
    share = max(_BEST_SHARE, _FEWEST_BEST / len(rows))
    signed = values if spec.objective.direction == "minimize" else -values
    n_best = int((signed <= np.sort(signed)[int(np.ceil(share * len(rows))) - 1]).sum())
    if n_best == len(rows) and (n_better := int((signed < signed.max()).sum())) >= _FEWEST_BEST:
        # Optuna rounds the share up to trials: a little less than a whole number, whatever floats make of it.
        n_best, share = n_better, (n_better - 0.5) / len(rows)
    if n_best == len(rows):
        return Importance(objective, len(rows), n_best, (), "fewer than 5 trials are better than the rest")
    drawn = [dict(zip(names, row[3:], strict=True)) for row in rows]
    spaces = [_distributions(spec, trial) for trial in drawn]
    found = _evaluate(drawn, spaces, signed.tolist(), share)
    rng = np.random.default_rng(_SEED)
    shuffled = [_evaluate(drawn, spaces, rng.permutation(signed).tolist(), share) for _ in range(_N_SHUFFLES)]
    chance = {name: float(np.quantile([each[name] for each in shuffled], 0.95)) for name in found}
    order = sorted(found, key=lambda name: -found[name])
    ranked = tuple(ParameterImportance(name, found[name], chance[name]) for name in order)
    return Importance(objective, len(rows), n_best, ranked, "")


def _evaluate(
    drawn: Sequence[Mapping[str, Scalar]],
    spaces: Sequence[Mapping[str, BaseDistribution]],
    values: Sequence[float],
    share: float,
) -> dict[str, float]:
    # Brings scikit-learn along, for seconds.
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    study.add_trials(
        [
            optuna.trial.create_trial(
                params={name: trial[name] for name in space}, distributions=dict(space), value=float(value)
            )
            for trial, space, value in zip(drawn, spaces, values, strict=True)
        ]
    )
    with warnings.catch_warnings():
        # A branch of a conditional parameter with a single trial: it is left out.
        warnings.simplefilter("ignore")
        return PedAnovaImportanceEvaluator(target_quantile=share).evaluate(study)


def _distributions(spec: Sweep, trial: Mapping[str, Scalar]) -> dict[str, BaseDistribution]:
    found = {name: dimension.distribution() for name, dimension in spec.varied().items()}
    fixed = spec.fixed()
    for name, condition in spec.conditional().items():
        on = trial[condition.on] if condition.on in trial else fixed.get(condition.on)
        branch = condition.then if on in condition.among else condition.otherwise
        if isinstance(branch, Categorical | Float | Int):
            found[name] = branch.distribution()
    return found
