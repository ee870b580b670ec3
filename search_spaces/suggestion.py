"""Draws the parameters of a trial from a sweep's search space with an Optuna sampler."""

from collections.abc import Mapping
from contextlib import suppress
from itertools import chain, repeat
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from attnsweep.search_spaces.dimensions import Categorical, Float, Int, Scalar, Varied
from attnsweep.search_spaces.replication import n_wanted
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import SpecError

_MAX_RANDOM_DRAWS = 10_000
_MAX_DRAWS = 50
"""How often a sampler that learns draws a trial until `where` allows it; then it is drawn at random."""


class Given(BaseSampler):
    """Draws these values."""

    def __init__(self, values: Mapping[str, Scalar]) -> None:
        self._values = values

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        del study, trial
        return {}

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: object) -> dict[str, Any]:
        del study, trial, search_space
        return {}

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, _: object) -> Any:
        del study, trial
        return self._values[param_name]


class _Within(Given):
    """Repeats the draws of a sampler that learns until they are a point that the sweep allows. Optuna asks for each
    parameter alone; because `where` judges whole points, all are drawn before it asks for the first."""

    def __init__(self, sampler: BaseSampler, sweep: Sweep) -> None:
        super().__init__({})
        self._sampler, self._sweep = sampler, sweep

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        space = self._sampler.infer_relative_search_space(study, trial)
        at_random = RandomSampler(seed=trial_seed(self._sweep, trial.number))
        # `boundary` would draw the same point again.
        n_own = 1 if self._sweep.sampler == "boundary" else _MAX_DRAWS
        for sampler in chain(repeat(self._sampler, n_own), repeat(at_random, _MAX_RANDOM_DRAWS)):
            drawn = sampler.sample_relative(study, trial, space) if sampler is self._sampler else {}
            draw_alone = sampler.sample_independent
            while missing := undrawn(self._sweep, drawn):
                for name, dimension in missing.items():
                    each = dimension.distribution()
                    drawn[name] = dimension.grid()[0] if each.single() else draw_alone(study, trial, name, each)
            self._values = drawn
            if is_allowed(self._sweep, drawn):
                break
        return {}  # Optuna then asks `sample_independent` for each.

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._sampler.before_trial(study, trial)


class _Tpe(TPESampler):
    """Knows the space from the sweep; Optuna would read it from all earlier trials before each draw. It still does with
    conditional parameters, as the space has those that all trials drew, and with several objectives, as it has none."""

    def __init__(self, sweep: Sweep, seed: int) -> None:
        # The group's earlier trials count as bad ones (the "constant liar"), so that they spread out.
        super().__init__(n_startup_trials=n_startup(sweep), constant_liar=True, seed=seed)
        varied = {name: each for name, each in sorted(distributions(sweep).items()) if not each.single()}
        self._known = None if sweep.conditional() or len(sweep.objectives) > 1 else varied

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return super().infer_relative_search_space(study, trial) if self._known is None else self._known


class _Nsga2(NSGAIISampler):
    """Generations and parents follow from the ended trials, not from notes in the study, so that a resumed sweep draws
    the same."""

    def _ended(self, study: Study) -> list[FrozenTrial]:
        return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))

    def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:
        del trial
        return len(self._ended(study)) // (self.population_size or 1)

    def get_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        size = self.population_size or 1
        return self._ended(study)[generation * size : (generation + 1) * size]

    def get_parent_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        return self.select_parent(study, generation) if generation else []


def make_sampler(sweep: Sweep, trial: int) -> BaseSampler:
    """Of a sweep whose sampler learns, seeded for one trial."""
    sampler = _learner(sweep, trial)
    return _Within(sampler, sweep) if sweep.where else sampler


def _learner(sweep: Sweep, trial: int) -> BaseSampler:
    seed = trial_seed(sweep, trial)
    match sweep.sampler:
        case "tpe":
            return _Tpe(sweep, seed)
        case "nsga2":
            return _Nsga2(population_size=n_startup(sweep), seed=seed)
        case "boundary":
            # It imports SciPy, which takes half a second.
            from attnsweep.search_spaces.boundary import BoundarySampler

            return BoundarySampler(
                distributions(sweep),
                seed=seed,
                layout_seed=sweep.seed % 2**32,
                n_replicates=n_wanted(sweep.replicates, {}),
                n_startup=n_startup(sweep),
            )
    return RandomSampler(seed=seed)


def is_allowed(sweep: Sweep, drawn: Mapping[str, Scalar]) -> bool:
    """Whether `where` holds and every formula has a value."""
    try:
        sweep.completed(values_of(sweep, drawn))
    except SpecError:
        return False
    return True


def n_startup(sweep: Sweep) -> int:
    """How many results a sampler needs before its draws depend on them: Optuna's defaults, and ours for `boundary`."""
    n_varied = sum(not distribution.single() for distribution in distributions(sweep).values())
    return {"tpe": 10, "nsga2": 50, "boundary": max(8, 4 * n_varied)}.get(sweep.sampler, 1)


def group_sizes(sweep: Sweep, n_trainers: int, n_told_before: int = 0) -> tuple[int, int]:
    """How many trials a sampler that learns draws first, less the `n_told_before` of `--warm-start`; and how many at a
    time once all earlier ones have ended, at least one for each trainer."""
    return max(n_startup(sweep) - n_told_before, 0), max(n_trainers, sweep.trials // 8)


def trial_seed(sweep: Sweep, trial: int) -> int:
    return int(np.random.SeedSequence([sweep.seed, trial]).generate_state(1)[0])


def distributions(sweep: Sweep) -> dict[str, BaseDistribution]:
    """Optuna's, of all unconditional parameters and of each `Zip`."""
    return {name: dimension.distribution() for name, dimension in sweep.drawn().items()}


def distributions_of(sweep: Sweep, drawn: Mapping[str, Scalar]) -> dict[str, BaseDistribution]:
    """Of all that a trial has drawn, conditional parameters included."""
    known: dict[str, BaseDistribution] = {}
    while missing := undrawn(sweep, {name: drawn[name] for name in known}):
        known |= {name: dimension.distribution() for name, dimension in missing.items()}
    return known


def suggest(sweep: Sweep, trial: Trial) -> dict[str, Scalar]:
    """Draws what has no value yet, unconditional parameters first; returns all values."""
    while missing := undrawn(sweep, trial.params):
        for name, dimension in missing.items():
            draw(trial, name, dimension)
    return values_of(sweep, trial.params)


def values_of(sweep: Sweep, drawn: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """By parameter, from what was drawn, with fixed and derived ones; those left at their defaults are left out."""
    values = sweep.fixed() | sweep.unzipped({name: drawn[name] for name in sweep.drawn()})
    for name, condition in sweep.conditional().items():
        branch = condition.branch(values[condition.on])
        if isinstance(branch, Varied):
            values[name] = drawn[name]
        elif branch is not None:
            values[name] = branch
    with suppress(SpecError):  # `OpenTrials` refuses the trial.
        return sweep.completed(values)
    return values


def undrawn(sweep: Sweep, drawn: Mapping[str, Scalar]) -> dict[str, Varied]:
    """What can be drawn next: unconditional parameters, then those whose condition has a value."""
    missing = {name: dimension for name, dimension in sweep.drawn().items() if name not in drawn}
    known = sweep.fixed() | sweep.unzipped(drawn)
    for name, condition in sweep.conditional().items():
        if name not in drawn and condition.on in known:
            branch = condition.branch(known[condition.on])
            if isinstance(branch, Varied):
                missing[name] = branch
    return missing


def draw(trial: Trial, name: str, dimension: Varied) -> Scalar:
    match dimension:
        case Categorical(choices=choices):
            return trial.suggest_categorical(name, choices)
        case Float(low=low, high=high, log=log):
            return trial.suggest_float(name, low, high, log=log)
        case Int(low=low, high=high, log=log):
            return trial.suggest_int(name, low, high, log=log)
