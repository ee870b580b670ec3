"""Which parameters decide whether a trial is among the best, computed from the trials of a ledger by Optuna's
PED-ANOVA.

The importance of a parameter is how far the distribution of its values among the best trials departs from that among
all trials (Pearson's divergence). An importance of 0 means that good trials occur all along the parameter's range.
Importance measures the effect of the parameter alone, averaged over the others as they were drawn: a parameter that
acts only together with another may show none. An importance has no direction and no interval; for comparison, it is
also computed 100 times with the objective shuffled over the trials. A sampler that learns draws few trials where the
objective is bad. This lowers the importance of the parameters that decide where it is bad; `random` and `qmc` sweeps
have no such bias.

Source: Watanabe, Bansal & Hutter 2023, PED-ANOVA (arXiv:2304.10255), in Optuna's implementation.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
from optuna.distributions import BaseDistribution

from attnsweep.orchestrator.analysis.answer import DrawnAnswer, table
from attnsweep.orchestrator.analysis.labels import check_known, parameter_label
from attnsweep.orchestrator.analysis.rates.bins import has_bin
from attnsweep.orchestrator.analysis.rates.by_parameter import swept_names
from attnsweep.orchestrator.ledger.trial import ended_trainings, judging_columns, objective_values
from attnsweep.orchestrator.ledger.views import IS_JUDGED, param_column
from attnsweep.search_spaces.dimensions import Scalar, Varied
from attnsweep.search_spaces.measured import goal_of
from attnsweep.search_spaces.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BEST_SHARE, _FEWEST_BEST, _FEWEST_TRIALS = 0.1, 5, 10
"""The share of trials that count as the best, and the least numbers of best trials and of all trials. Optuna advises at
least 5 best trials."""
_N_SHUFFLES, _SEED = 100, 0


@dataclass(frozen=True, slots=True)
class ParameterImportance:
    """How much one parameter decides whether a trial is among the best by an objective of the sweep: its `importance`
    by PED-ANOVA.

    Importances need not sum to 1. For comparison, `chance` is the 95th percentile of the importance when the objective
    is shuffled over the trials.
    """

    parameter: str
    importance: float
    chance: float


@dataclass(frozen=True, slots=True, repr=False)
class Importance(DrawnAnswer):
    """How much each swept parameter decides whether a trial is among the best by one objective. The numbers are the
    importances that PED-ANOVA computes.

    Attributes:
        objective: What makes a trial good, such as `stuck_rate, to minimize`.
        n_best: The number of best trials: a tenth of all, at least 5, and all that tie with the last of these. If these
            would be all trials, the best trials are those better than the worst one.
        parameters: The most important parameter first; empty if no importance can be computed, and `note` says why.
    """

    objective: str
    n_trials: int
    n_best: int
    parameters: tuple[ParameterImportance, ...]
    note: str

    def _in_words(self) -> str:
        importances = ", ".join(f"{parameter.parameter} {parameter.importance:.2g}" for parameter in self.parameters)
        return f"{self.objective}: {self.note or importances}"

    def to_arrow(self) -> pa.Table:
        """Returns one row per parameter: its importance and, as `chance`, the importance that only 5% of computations
        exceed if the objective is shuffled over the trials."""
        return table({"parameter": str, "importance": float, "chance": float}, map(astuple, self.parameters))

    def plot(self) -> "Figure":
        """Draws the importance of each parameter as a bar. A mark shows the importance that only 5% of computations
        exceed if the objective is shuffled over the trials."""
        from attnsweep.orchestrator.analysis import figures

        rows = range(len(self.parameters))
        with figures.house_style():
            figure, panel = figures.new_figure(1.3 * figures.WIDTH, 1.4 + 0.35 * max(len(rows), 1), grid="x")
            panel.barh(rows, [parameter.importance for parameter in self.parameters], color=figures.BLUE, height=0.6)
            chance = [parameter.chance for parameter in self.parameters]
            marks = panel.plot(chance, rows, linestyle="none", marker="|", markersize=14, color=figures.VERMILION)
            panel.set_yticks(rows, [parameter_label(parameter.parameter) for parameter in self.parameters])
            panel.invert_yaxis()
            panel.set_xlabel("PED-ANOVA importance (Pearson divergence)")
            panel.set_title(self.note or f"{self.objective}: {self.n_best:,} best of {self.n_trials:,} trials")
            if self.parameters:
                figures.legend_below(figure, {"reached by 5% of shuffles": marks[0]})
        return figure


def importance(connection: duckdb.DuckDBPyConnection, spec: Sweep, name: str | None = None) -> Importance:
    """Computes how much each swept parameter decides whether a trial is among the best by an objective of the sweep, by
    default the first. Raises a `UserError` if the sweep has no objective of this name."""
    named = {objective.label: objective for objective in spec.objectives}
    if name is not None:
        check_known("objective", name, list(named), "none", "see docs/sampling.md")
    chosen = named[name or spec.objectives[0].label]
    names = swept_names(spec)
    columns = "".join(f", any_value({param_column(name)})" for name in names)
    rows = connection.execute(
        f"select trial{columns} from trainings where {IS_JUDGED} group by trial order by trial"
    ).fetchall()
    objective = goal_of(chosen)
    value_of = objective_values(ended_trainings(judging_columns(connection)), chosen)
    values = np.array([value_of[row[0]] for row in rows])
    if len(rows) < _FEWEST_TRIALS:
        return Importance(objective, len(rows), 0, (), f"{len(rows)} trials are too few: {_FEWEST_TRIALS} at least")
    share = max(_BEST_SHARE, _FEWEST_BEST / len(rows))
    signed = values if chosen.direction == "minimize" else -values
    n_best = int((signed <= np.sort(signed)[int(np.ceil(share * len(rows))) - 1]).sum())
    if n_best == len(rows) and (n_better := int((signed < signed.max()).sum())) >= _FEWEST_BEST:
        # Optuna multiplies `share` by the number of trials and rounds up, to get the number of best trials. Here the
        # product is `n_better` - 0.5, which is rounded up to `n_better` even if it has a rounding error.
        n_best, share = n_better, (n_better - 0.5) / len(rows)
    if n_best == len(rows):
        return Importance(objective, len(rows), n_best, (), "fewer than 5 trials are better than the rest")
    drawn = [dict(zip(names, row[1:], strict=True)) for row in rows]
    spaces = [_distributions(spec, trial) for trial in drawn]
    importances = _evaluate(drawn, spaces, signed.tolist(), share)
    rng = np.random.default_rng(_SEED)
    shuffled = [_evaluate(drawn, spaces, rng.permutation(signed).tolist(), share) for _ in range(_N_SHUFFLES)]
    chance = {name: float(np.quantile([shuffle[name] for shuffle in shuffled], 0.95)) for name in importances}
    order = sorted(importances, key=lambda name: -importances[name])
    ranked = tuple(ParameterImportance(name, importances[name], chance[name]) for name in order)
    return Importance(objective, len(rows), n_best, ranked, "")


def _evaluate(
    drawn: Sequence[Mapping[str, Scalar]],
    spaces: Sequence[Mapping[str, BaseDistribution]],
    values: Sequence[float],
    share: float,
) -> dict[str, float]:
    # Optuna's importance evaluator loads scikit-learn, which takes seconds. Therefore the evaluator is imported only
    # inside this function.
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    for trial, space, value in zip(drawn, spaces, values, strict=True):
        params = {name: trial[name] for name in space}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=dict(space), value=float(value)))
    with warnings.catch_warnings():
        # If only one trial drew a conditional parameter from one of its distributions, Optuna ignores this distribution
        # and warns. The warning is hidden.
        warnings.simplefilter("ignore")
        return PedAnovaImportanceEvaluator(target_quantile=share).evaluate(study)


def _distributions(spec: Sweep, trial: Mapping[str, Scalar]) -> dict[str, BaseDistribution]:
    distributions = {
        name: dimension.distribution() for name, dimension in spec.varied().items() if has_bin(dimension, trial[name])
    }
    fixed = spec.fixed()
    for name, condition in spec.conditional().items():
        condition_value = trial[condition.on] if condition.on in trial else fixed.get(condition.on)
        branch = condition.branch(condition_value)
        if isinstance(branch, Varied) and has_bin(branch, trial[name]):
            distributions[name] = branch.distribution()
    return distributions
