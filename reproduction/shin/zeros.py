"""Shin & Matzinger 2025, section 3: checks of equations 3.7-3.9, 3.18, 3.33, 3.54 and the line before 3.71, and the
families of stationary points that a search finds.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from attnsweep.orchestrator.analysis.rates.intervals import binomial_rate
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import value_row
from attnsweep.reproduction.shin.equations import EquationCheck
from attnsweep.reproduction.shin.equations_of_categories import checks_of_categories
from attnsweep.reproduction.shin.equations_of_positions import checks_of_positions
from attnsweep.reproduction.shin.zeros_figures import stationary_points_figure, valley_figure
from attnsweep.reproduction.shin.zeros_search import (
    FAMILIES,
    INIT_SIGMA,
    SIZES,
    SOLVES_PER_SIZE,
    FoundPoints,
    find_points,
)
from attnsweep.reproduction.trained import one_thread


def reproduce(directory: Path, console: Console) -> Comparison:
    """Checks the paper's equations, searches for stationary points, and draws them with the valley at infinity."""
    with one_thread():
        console.print("checking equations")
        checks = {"P": checks_of_positions(), "C": checks_of_categories()}
        n_solves = SOLVES_PER_SIZE * len(SIZES)
        console.print(f"searching for stationary points, {n_solves} solves per system")
        points = {system: find_points(system, SOLVES_PER_SIZE) for system in FAMILIES}
        console.print("drawing")
        figures = [
            *save_figure(stationary_points_figure(points), directory, "stationary_points"),
            *save_figure(valley_figure(), directory, "valley"),
        ]
    return compare(checks, points, figures)


def compare(
    checks: dict[str, list[EquationCheck]], points: dict[str, FoundPoints], figures: Sequence[Path]
) -> Comparison:
    """Compares the checked equations and the stationary points found with the paper's statements."""
    sizes = ", ".join(f"({N}, {M})" for N, M in SIZES)
    n_solves = len(points["P"].family)
    return Comparison(
        title="Equations and zeros of the reduced systems P (positions only) and C (categories only)",
        source="Shin & Matzinger 2025, section 3",
        rows=[
            *(_equation_row(system, check) for system, own_checks in checks.items() for check in own_checks),
            *(row for system in FAMILIES for row in _index_rows(system, points[system])),
        ],
        tables=[
            *((f"System {system}, equation by equation", _equation_table(own)) for system, own in checks.items()),
            (f"Stationary families: where {n_solves} solves per system landed", _family_table(points)),
        ],
        figures=figures,
        notes=[
            "Checked by number: 3.7-3.9, 3.18, 3.33, 3.54 and the line before 3.71. The text of the other equations "
            "between 3.5 and 3.71 is not available to us: where the printed form is missing ('-' under printed), the "
            "verdict 'ours holds' is about our form alone.",
            "We do not know which of 3.7-3.9 and 3.18 prints which gradient. Set to 0 they give the same points; the "
            "factor -1/2 matters only for rates and signs.",
            "'missed': the error printed is the distance of the level from the levels that the paper analyses. 3.54: "
            "the error over all points found, beside that over points with Sum_i (sg_i + d_i) != 0.",
            "Letters, P: with q_ji the weight of position j for predicted position i: s_i = Sum_j q_ji, "
            "n_i = Sum_j q_ji^2, p_i = q_(i-1)i; P = 11^t/N, b = tr(vP), a = tr v - b, B = |vP|^2, A = |v|^2 - B; "
            "K = M - 1.",
            "Letters, C: row i of v has p_i = v_i(i-1), d_i = v_ii, and without v_ii the sum sg_i and sum of "
            "squares n_i; o is any other entry; m(t) = E q(X,t), D(t) = q(t,t), qt = q - m; V and C are the "
            "variance of q and its covariance with q* given X_i; e_i = m* - sg_i m - d_i D; stars are for q*.",
            "Bound on sigma: the printed exponent -1/2 is inferred from the paper's rule of about 1/sqrt(N). Errors "
            "are of the exponent, estimated from random starts at N = 16..128.",
            f"Solves: damped least squares on the gradient in float64 from N(0, {INIT_SIGMA}^2), (N, M) in {sizes}, "
            f"{n_solves // len(SIZES)} each; each solve of system C has its own q*. The shares are of this search, "
            "which is attracted by saddles, and not of descents. 'not converged' had gradients above 1e-10 after 200 "
            "iterations, or norms above 1000.",
            "zero_row_sums and zero_diagonal have the same predictors: with row sums 0 a column of q may be shifted, "
            "with a zero diagonal the d_i are free. Their level is E Y^2 less a stationary value of a closed form G of "
            "the ratio o/p (reproduction/shin/row_sum_families.py), at every point found at (3, 4).",
        ],
    )


def _equation_row(system: str, check: EquationCheck) -> ComparedValue:
    published = {"missed": "not analysed", "needs an assumption": "without it"}.get(check.flaw, "as printed")
    verdict = check.verdict
    return value_row(
        f"{system} {check.equation}: {check.subject}",
        verdict,
        None if check.printed_error is None else published,
        agrees=None if verdict == "ours holds" else verdict == "holds",
    )


def _index_rows(system: str, points: FoundPoints) -> Iterator[ComparedValue]:
    for family in FAMILIES[system]:
        index_L = points.index[points.family == family.name]
        indices = sorted(set(index_L.tolist()))
        ours = f"{_listed(indices)} at {len(index_L)} points" if indices else "no point found"
        agrees = set(indices) == set(family.indices) if indices else None
        derived = f"{_listed(family.indices)} (derived)"
        yield value_row(f"{system} {family.name}: Hessian index", ours, derived, agrees=agrees)
    n = int((points.family == "none").sum())
    ours = f"{n} of {len(points.family)} solves"
    yield value_row(f"{system} points of no known family", ours, "0 (derived)", agrees=n == 0)


def _equation_table(checks: Sequence[EquationCheck]) -> list[list[str]]:
    header = ["equation", "statement", "verdict", "error printed", "error right form"]
    return [header] + [
        [check.equation, check.statement, check.verdict, _error(check.printed_error), _error(check.right_error)]
        for check in checks
    ]


def _family_table(points: dict[str, FoundPoints]) -> list[list[str]]:
    rows = [["", "family", "level", "Hessian index", "landed", "share", "95% interval"]]
    for system, families in FAMILIES.items():
        levels = {family.name: family.level for family in families} | {"none": "", "not converged": ""}
        found = points[system]
        for name, level in levels.items():
            chosen = found.family == name
            rate = binomial_rate(int(chosen.sum()), chosen.size)
            counts = {int(index): int((found.index[chosen] == index).sum()) for index in np.unique(found.index[chosen])}
            landed = [f"{rate.k} of {rate.n}", f"{rate.share:.3f}", f"[{rate.low:.3f}, {rate.high:.3f}]"]
            rows.append([system, name, level, "" if not level else _counted(counts), *landed])
    return rows


def _counted(counts: dict[int, int]) -> str:
    if len(counts) == 1:
        return str(next(iter(counts)))
    return ", ".join(f"{index} ({count}x)" for index, count in counts.items())


def _listed(indices: Sequence[int]) -> str:
    return " or ".join(map(str, indices))


def _error(error: float | None) -> str:
    return "-" if error is None else f"{error:.1e}"
