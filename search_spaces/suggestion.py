"""From a search space and an Optuna trial to the parameters of one configuration."""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import (
    BaseSampler,
    GridSampler,
    NSGAIISampler,
    QMCSampler,
    RandomSampler,
)
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial

from attnsweep.search_spaces.batched_tpe import BatchedTPESampler
from attnsweep.search_spaces.dimensions import Categorical, Conditional, Float, Int, Scalar, Simple, Varied
from attnsweep.search_spaces.grid import grid_axes
from attnsweep.search_spaces.replication import n_wanted
from attnsweep.search_spaces.sweep import Sweep


class _BudgetedGridSampler(GridSampler):
    """Optuna's, which does not stop the study when the grid is used up: the number of trials ends a sweep, and outside
    `study.optimize` Optuna's way to stop is an error."""

    def after_trial(self, *_: object) -> None: ...


class SweepQMCSampler(QMCSampler):
    """Optuna's quasi-random sequence over the unconditional parameters, whatever became of earlier trials.

    Optuna's own reads the parameters off a trial that ended well; until there is one, it may draw at random from the
    sampler's seed, which is the sweep's: the same configuration again and again.
    """

    def __init__(self, sweep: Sweep, own_seed: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            super().__init__(
                seed=sweep.seed % 2**32,
                scramble=True,
                independent_sampler=RandomSampler(seed=own_seed),
                warn_independent_sampling=False,
            )
        self._space = distributions(sweep)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        del study
        return self._space if trial.number else {}


def make_sampler(sweep: Sweep, trial: int, earlier: Sequence[FrozenTrial] = ()) -> BaseSampler:
    """The Optuna sampler that a sweep names, seeded by the sweep for this trial alone.

    Args:
        sweep: The sweep.
        trial: The number of the trial.
        earlier: Trials of earlier sweeps, where the sampler takes them from nowhere else: `cmaes` begins with them.

    Layouts that are shared by the whole sweep (the quasi-random sequence, the grid) are seeded by the sweep alone.
    """
    sweep_seed = sweep.seed % 2**32
    seed = trial_seed(sweep, trial)
    match sweep.sampler:
        case "tpe":
            sampler = BatchedTPESampler()
            sampler.begin(seed)
            return sampler
        case "nsga2":
            return NSGAIISampler(seed=seed)
        case "random":
            return RandomSampler(seed=seed)
        case "qmc":
            # The first trial is drawn before the sequence begins.
            return SweepQMCSampler(sweep, seed if trial else sweep_seed)
        case "cmaes":
            # SciPy takes a second to import.
            from attnsweep.search_spaces.cma_es import warm_cma_es

            return warm_cma_es(seed, distributions(sweep), earlier)
        case "boundary":
            # scikit-learn takes seconds to import.
            from attnsweep.search_spaces.boundary import BoundarySampler

            return BoundarySampler(
                distributions(sweep), seed=seed, layout_seed=sweep_seed, n_replicates=n_wanted(sweep.replicates, {})
            )
        case "grid":
            return _BudgetedGridSampler(grid_axes(sweep), seed=sweep_seed)


def trial_seed(sweep: Sweep, trial: int) -> int:
    """The seed of a trial's draws."""
    return int(np.random.SeedSequence([sweep.seed, trial]).generate_state(1)[0])


def distributions(sweep: Sweep) -> dict[str, BaseDistribution]:
    """The distributions of what is drawn without looking at another parameter, by its name in the space."""
    return {name: dimension.distribution() for name, dimension in sweep.drawn().items()}


def distributions_of(sweep: Sweep, drawn: Mapping[str, Scalar]) -> dict[str, BaseDistribution]:
    """The distributions of what a trial has drawn, conditional parameters included."""
    found: dict[str, BaseDistribution] = {}
    while missing := undrawn(sweep, {name: drawn[name] for name in found}):
        found |= {name: dimension.distribution() for name, dimension in missing.items()}
    return found


def suggest(sweep: Sweep, trial: Trial) -> dict[str, Scalar]:
    """The values of a trial: draws the parameters that it lacks, unconditional ones first."""
    while missing := undrawn(sweep, trial.params):
        for name, dimension in missing.items():
            draw(trial, name, dimension)
    return values_of(sweep, trial.params)


def values_of(sweep: Sweep, drawn: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The values of a trial by parameter name, conditional ones included; defaults are not.

    Args:
        sweep: The sweep.
        drawn: The values drawn for the trial, complete: `undrawn` would be empty.
    """
    values = sweep.fixed() | sweep.unzipped({name: drawn[name] for name in sweep.drawn()})
    for name, condition in sweep.conditional().items():
        branch = _branch(condition, values[condition.on])
        if isinstance(branch, Varied):
            values[name] = drawn[name]
        elif branch is not None:
            values[name] = branch
    return values


def undrawn(sweep: Sweep, drawn: Mapping[str, Scalar]) -> dict[str, Varied]:
    """The parameters that a trial still has to draw, in order; those that depend on one of them are not yet known.

    Args:
        sweep: The sweep.
        drawn: The values drawn for the trial so far.
    """
    missing = {name: dimension for name, dimension in sweep.drawn().items() if name not in drawn}
    known = sweep.fixed() | sweep.unzipped(drawn)
    for name, condition in sweep.conditional().items():
        if name not in drawn and condition.on in known:
            branch = _branch(condition, known[condition.on])
            if isinstance(branch, Varied):
                missing[name] = branch
    return missing


def draw(trial: Trial, name: str, dimension: Varied) -> Scalar:
    """The value of one parameter: drawn by the trial's sampler, or as it was drawn before."""
    match dimension:
        case Categorical(choices=choices):
            return trial.suggest_categorical(name, choices)
        case Float(low=low, high=high, log=log):
            return trial.suggest_float(name, low, high, log=log)
        case Int(low=low, high=high, log=log):
            return trial.suggest_int(name, low, high, log=log)


def _branch(condition: Conditional, value: Scalar) -> Simple | None:
    """How a conditional parameter varies if the parameter that it depends on has this value."""
    return condition.then if value in condition.among else condition.otherwise
