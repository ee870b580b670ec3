"""How often the 95% band of a phase diagram's border holds the true border, by the number of trials.

    python benchmarks/border_coverage.py [--trials 100 1000 10000 100000] [--truths smooth sharp folded step]
        [--correlations 0 0.4] [--sweeps 200] [--seconds 60] [--out FILE.json]

Simulated sweeps: trials evenly at random over the square, 8 trainings each. The trainings of a trial are independent or
have an intra-trial correlation (a beta-binomial distribution). The truths, over a square of 2 by 2, in logits:

- `smooth`: a quadratic surface, from one half to near 1 over the square.
- `sharp`: a plane of 24 logits per unit of length, which is 12 a decade of four.
- `folded`: a bent ridge, 16 logits per unit of length: two borders, which no quadratic surface has.
- `step`: trainings never or always have the ending, on the two sides of a wave.

A case ends after `sweeps` of them or `seconds`. `border` is the share of 40 places on the true border, evenly by chords
of the square, at which the band holds 1/2; in a sweep whose surface fails its test of residuals no border is drawn,
which `refused` counts, and which does not count for `border`. `within` is the same share at places where the truth is
between 0.02 and 0.98. `error` is the root mean square of the surface less the truth over the square. `terms` and
`cpu_seconds` are means of a fit.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import chosen, main
from numpy.typing import NDArray
from scipy import special

from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram, fit_phase_diagram
from attnsweep.orchestrator.analysis.phase.surface import PlaneAxis, TrialCounts

Array = NDArray[np.float64]
TRAININGS = 8
PLACES, EVERYWHERE = 40, 1000
X, Y = PlaneAxis("x", False, -1, 1), PlaneAxis("y", False, -1, 1)
TRUTHS: dict[str, Callable[[Array, Array], Array]] = {
    "smooth": lambda x, y: 0.3 + 1.5 * x - y + 0.5 * x * y - 0.6 * x**2 + 0.4 * y**2,
    "sharp": lambda x, y: -24 * (x - 0.15 * y + 0.1),
    "folded": lambda x, y: 16 * (0.35 - abs(y - 0.9 * x**2 + 0.3)),
    "step": lambda x, y: 40 * np.sign(y - 0.3 * np.sin(3 * x)),
}


def measure(
    *,
    trials: tuple[int, ...] = (100, 1000, 10_000, 100_000),
    truths: tuple[str, ...] = tuple(TRUTHS),
    correlations: tuple[float, ...] = (0.0, 0.4),
    sweeps: int = 200,
    seconds: float = 60.0,
) -> dict[str, Any]:
    """Simulates all cases."""
    rows = []
    for n_trials in trials:
        for truth in chosen(TRUTHS, truths):
            # Trainings that always end alike are wholly dependent anyway.
            for correlation in correlations if truth != "step" else (0.0,):
                found = coverage(TRUTHS[truth], n_trials, correlation, sweeps, seconds)
                rows.append({"trials": n_trials, "truth": truth, "correlation": correlation, **found})
    return {"rows": rows}


def coverage(
    truth: Callable[[Array, Array], Array], n_trials: int, correlation: float, sweeps: int, seconds: float
) -> dict[str, Any]:
    """The figures of one case."""
    rng = np.random.default_rng(1)
    border, anywhere = border_of(truth, rng), rng.uniform(-1, 1, (2, EVERYWHERE))
    expected = special.expit(truth(*anywhere))
    is_within = (expected > 0.02) & (expected < 0.98)
    covered, within, errors, terms, spent = [], [], [], [], []
    n_sweeps, end = 0, time.monotonic() + seconds
    while n_sweeps < sweeps and time.monotonic() < end:
        n_sweeps += 1
        counts, started = simulated(truth, n_trials, correlation, rng), time.process_time()
        diagram = fit_phase_diagram(X, Y, counts, counts.n)
        spent.append(time.process_time() - started)
        if diagram.surface is None or not diagram.surface.fits:
            continue
        covered.append(holds(diagram, border, np.full(PLACES, 0.5)))
        within.append(holds(diagram, anywhere[:, is_within], expected[is_within]))
        errors.append(np.square(diagram.at(*anywhere)[0] - expected).mean())
        terms.append(diagram.surface.logit.n_effective)
    return {
        "sweeps": n_sweeps,
        "refused": n_sweeps - len(covered),
        "border": round(float(np.mean(covered)), 3),
        "within": round(float(np.mean(within)), 3) if is_within.any() else None,
        "error": round(float(np.sqrt(np.mean(errors))), 4),
        "terms": round(float(np.mean(terms)), 1),
        "cpu_seconds": round(float(np.mean(spent)), 3),
    }


def border_of(truth: Callable[[Array, Array], Array], rng: np.random.Generator) -> Array:
    """(2, `PLACES`) places where the truth is one half: on random chords, by halving."""
    found: list[Array] = []
    while len(found) < PLACES:
        ends = rng.uniform(-1, 1, (2, 2))
        if truth(*ends[0]) * truth(*ends[1]) >= 0:
            continue
        for _ in range(50):
            middle = ends.mean(axis=0)
            ends[0 if truth(*middle) * truth(*ends[0]) > 0 else 1] = middle
        found.append(ends[0])
    return np.array(found).T


def simulated(
    truth: Callable[[Array, Array], Array], n_trials: int, correlation: float, rng: np.random.Generator
) -> TrialCounts:
    """The trials of one sweep."""
    x, y = rng.uniform(-1, 1, (2, n_trials))
    chance = special.expit(truth(x, y))
    if correlation:
        strength = 1 / correlation - 1
        often, seldom = np.maximum([chance * strength, (1 - chance) * strength], 1e-12)
        chance = np.asarray(rng.beta(often, seldom))
    return TrialCounts(x, y, np.full(n_trials, float(TRAININGS)), rng.binomial(TRAININGS, chance).astype(float))


def holds(diagram: PhaseDiagram, places: Array, expected: Array) -> NDArray[np.bool_]:
    """Whether the band holds the truth at each place."""
    _, low, high = diagram.at(*places)
    return (low <= expected) & (expected <= high)


if __name__ == "__main__":
    main(measure)
