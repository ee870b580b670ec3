"""Fits the surface of a phase diagram: a logistic regression with its uncertainty. Axes: T trial.

The logit of the probability to end stuck (or with another ending) is a polynomial of the two parameters, each scaled to
-1..1, by its logarithm where the space is logarithmic. It is linear; the product is added from 20 trials on, the
squares from 30 on where each parameter has three values (5 trials per term). The trainings of one trial are not
independent, so the covariance is that of `clustered_covariance`. Bands use Student's t with T - terms degrees of
freedom. They are pointwise: the delta method on the linear predictor, where it is exact. A trial counts as many
trainings as it has; under `Sequential` replication, where that number depends on how they ended, all trials count the
same.

If a plane of the model separates trials with such trainings from trials without, the likelihood has no maximum. A
linear program detects this. A ridge penalty then gives a surface, for which no band is claimed.

In simulation (intra-trial correlation 0 and 0.4, 8 trainings a trial, borders of 1.5 to 12 logits a decade over four
decades) the band covers a truth between 0.1 and 0.9 in 94 to 98% of cases with 128 and 512 trials, and in 97 to 99.5%
with 32, where it is wide. Where the truth is within 0.001 of 0 or 1, it covers in 83 to 98%. The tests repeat a part.

Source: Albert & Anderson 1984, Konis 2007 (separation).
"""

import numpy as np

from attnsweep.orchestrator.analysis.logistic import fit_logistic
from attnsweep.orchestrator.analysis.phase.residuals import pearson_residuals
from attnsweep.orchestrator.analysis.phase.surface import (
    TERMS,
    Floats,
    PlaneAxis,
    Surface,
    TrialCounts,
    design_matrix,
    expit,
)
from attnsweep.orchestrator.analysis.rates.ending import STUCK, Ending
from attnsweep.orchestrator.analysis.sandwich import clustered_covariance

_TRIALS_PER_TERM = 5
_FEW_TRIALS = 1000
_RIDGE = 0.1
"""The ridge penalty of squared coefficients, in trials' worth of log-likelihood; used if the likelihood has no
maximum."""


def fit_surface(
    x: PlaneAxis, y: PlaneAxis, trials: TrialCounts, weight: Floats, ending: Ending = STUCK
) -> tuple[Surface | None, str]:
    """Fits the model.

    Args:
        x, y: The parameters.
        trials: Each with at least one training.
        weight: (T,) the weight of each trial in the fit, in trainings.
        ending: What the counts are of.

    Returns:
        The surface, `None` if there is nothing to fit; and a note that says what was fitted, or why nothing was.
    """
    n_trials, total, n_with = len(trials.n), int(trials.n.sum()), int(trials.k.sum())
    counted = f"{total:,} trainings of {n_trials:,} trials"
    if n_with in (0, total):
        which = "none" if n_with == 0 else "all"
        return None, f"{which} of {counted} {ending.verb}: there is no boundary to fit"
    if x.low == x.high or y.low == y.high:
        same = x.name if x.low == x.high else y.name
        return None, f"{same} is the same in {counted}: there is no plane to fit"
    design = design_matrix(x.scaled(trials.x), y.scaled(trials.y))
    n_terms = _supported_terms(design)
    if n_terms == 0:
        return None, f"too few for a model ({counted} in too few places of the plane)"
    design = design[:, :n_terms]
    note = f"{counted}; logit P({ending.label}) of {', '.join(TERMS[:n_terms])}"
    if _is_separated(design, trials):
        surface, why = None, f"{ending.label} and other trials are separated"
    else:
        surface, why = _maximum_likelihood((x, y), design, trials, weight), "maximum likelihood does not converge"
    if surface is None:
        surface = _ridge((x, y), design, trials, weight)
        note += f"; {why}: a ridge instead of maximum likelihood, and no band"
    return surface, note


def _maximum_likelihood(
    axes: tuple[PlaneAxis, PlaneAxis], design: Floats, trials: TrialCounts, weight: Floats
) -> Surface | None:
    """The surface of maximum likelihood; `None` if the iteration diverges."""
    from scipy import special

    # Each trial is one row, whose score is the sum of its trainings' scores, so each row is a cluster.
    share, (n_trials, n_terms) = trials.k / trials.n, design.shape
    fitted = fit_logistic(design, weight, share * weight)
    if not fitted.has_converged:
        return None
    covariance = clustered_covariance(fitted, design, weight, share * weight)
    quantile = float(special.stdtrit(n_trials - n_terms, 0.975))
    dispersion = float(np.square(pearson_residuals(trials, fitted.probability)).sum() / (n_trials - n_terms))
    return Surface(*axes, TERMS[:n_terms], fitted.coefficients, covariance, quantile, dispersion)


def _ridge(axes: tuple[PlaneAxis, PlaneAxis], design: Floats, trials: TrialCounts, weight: Floats) -> Surface:
    """The penalized surface for a likelihood without a maximum; it has no covariance."""
    import statsmodels.genmod.families as families
    from statsmodels.genmod.generalized_linear_model import GLM

    model = GLM(trials.k / trials.n, design, family=families.Binomial(), freq_weights=weight)
    n_trials, n_terms = design.shape
    penalty = np.full(n_terms, _RIDGE / n_trials)
    penalty[0] = 0.0
    coefficients = np.asarray(model.fit_regularized(alpha=penalty, L1_wt=0.0).params)
    residuals = pearson_residuals(trials, expit(design @ coefficients))
    dispersion = float(np.square(residuals).sum() / max(n_trials - n_terms, 1))
    return Surface(*axes, TERMS[:n_terms], coefficients, None, float("nan"), dispersion)


def _supported_terms(design: Floats) -> int:
    """The number of terms of the largest of the three models that the trials' places can determine; 0 if none."""
    for n_terms in (6, 4, 3):
        enough = len(design) >= _TRIALS_PER_TERM * n_terms or (n_terms == 3 and len(design) > n_terms)
        if enough and np.linalg.matrix_rank(design[:, :n_terms]) == n_terms:
            return n_terms
    return 0


def _is_separated(design: Floats, trials: TrialCounts) -> bool:
    """Whether the likelihood grows without bound in some direction of the coefficients.

    If some of the trials allow no such direction, all do not; and where trials are many, a few of them usually do.
    """
    few = np.linspace(0, len(design) - 1, min(len(design), _FEW_TRIALS)).astype(np.int64)
    if len(few) < len(design) and np.linalg.matrix_rank(design[few]) == design.shape[1]:
        some = TrialCounts(*(getattr(trials, name)[few] for name in ("x", "y", "n", "k")))
        if not _has_direction(design[few], some):
            return False
    return _has_direction(design, trials)


def _has_direction(design: Floats, trials: TrialCounts) -> bool:
    """Konis's linear program."""
    from scipy import optimize

    mixed = (trials.k > 0) & (trials.k < trials.n)
    signed = np.where(trials.k > 0, 1.0, -1.0)[~mixed, None] * design[~mixed]
    if not len(signed):
        return False
    found = optimize.linprog(
        -signed.sum(axis=0),
        A_ub=-signed,
        b_ub=np.zeros(len(signed)),
        A_eq=design[mixed] if mixed.any() else None,
        b_eq=np.zeros(int(mixed.sum())) if mixed.any() else None,
        bounds=(-1, 1),
    )
    return bool(found.success and signed.sum(axis=0) @ found.x > 1e-6)
