"""Shin & Matzinger 2025, section 3: checks of its equations (3.7-3.9, 3.18, 3.33, 3.54 and the line before 3.71), and
the stationary points that a search finds.

Axes: L solve or descent, S step.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.analysis.rates.intervals import binomial_rate
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure, value_row
from attnsweep.reproduction.figures import Curve, Panel, draw_curves
from attnsweep.reproduction.shin.equations_of_categories import checks_of_categories
from attnsweep.reproduction.shin.equations_of_positions import centred_shift_level, checks_of_positions, valley_level
from attnsweep.reproduction.shin.stationary import (
    EquationCheck,
    family_of_categories_only,
    family_of_positions_only,
    objective_of,
    searched,
)
from attnsweep.workloads.category_pairs.categories_only import CategoriesOnly
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.engine.streams import Streams

SIZES = ((2, 3), (3, 4), (4, 3), (4, 5))
"""(N, M) of the problems that are searched, small because the Hessian is formed."""
SOLVES_PER_SIZE = 200
INIT_SIGMA = 1.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """`level` is the loss per predicted position as a formula, `indices` the Hessian indices that points may have."""

    name: str
    level: str
    indices: tuple[int, ...]


FAMILIES = {
    "P": (
        Family(name="solution", level="0", indices=(0,)),
        Family(name="centred_shift", level="1/N + 1/M - 1/(NM)", indices=(1,)),
        Family(name="mean", level="1 - 1/N", indices=(1,)),
        Family(name="zero", level="1", indices=(2,)),
    ),
    "C": (
        Family(name="solution", level="0", indices=(0,)),
        Family(name="zero_row_sums", level="E Y^2 - G", indices=(1, 2)),
        Family(name="zero_diagonal", level="E Y^2 - G", indices=(1, 2)),
        Family(name="marginal", level="V*", indices=(1,)),
        Family(name="zero", level="E Y^2", indices=(3,)),
    ),
}


@dataclass(frozen=True, slots=True)
class FoundPoints:
    """Where the searches of one system ended; arrays are (L,).

    Attributes:
        family: Among `FAMILIES`; `none` for a stationary point of no known family, or `not converged`.
        index: The Hessian index.
        level: The loss as a share of that of the output 0.
        size: The index into `SIZES`.
    """

    family: NDArray[np.str_]
    index: NDArray[np.int64]
    level: NDArray[np.float64]
    size: NDArray[np.int64]


def find_points(system: str, n_solves: int, sizes: Sequence[tuple[int, int]] = SIZES) -> FoundPoints:
    parts = []
    for size, (N, M) in enumerate(sizes):
        if system == "P":
            positions = PositionsOnly(N, M, softmax=False).double()
            points, _ = searched(positions, n_solves, INIT_SIGMA)
            family = family_of_positions_only(points, positions.reference_levels())
            zero = torch.ones_like(points.losses)
        else:
            points, tasks = searched(CategoriesOnly(N, M, softmax=False), n_solves, INIT_SIGMA)
            target = tasks["target_NN"]
            zero = target.square().mean((1, 2))
            levels = {"marginal": target.var(dim=1, correction=0).mean(1), "zero": zero}
            family = family_of_categories_only(points, levels)
        family = np.where(points.converged.numpy(), family, "not converged")
        level = (points.losses.detach() / (M - 1) / zero).numpy()
        parts.append(FoundPoints(family, points.index.numpy(), level, np.full(n_solves, size)))
    columns = ([getattr(part, field.name) for part in parts] for field in fields(FoundPoints))
    return FoundPoints(*map(np.concatenate, columns))


def reproduce(directory: Path, console: Console) -> Comparison:
    with training_settings():
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
            "the ratio o/p (reproduction/shin/equations_of_categories.py), at every point found at (3, 4).",
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


_N, _M, _DESCENT_SIGMA, _LEARNING_RATE, _N_STEPS = 10, 20, 0.3, 0.01, 6000
"""Of the gradient descents that are drawn."""
_DOTS = {"marker": ".", "linestyle": "", "alpha": 0.6}


def stationary_points_figure(points: Mapping[str, FoundPoints]) -> Figure:
    """Losses against Hessian indices, by family."""
    panels = []
    for system, found in points.items():
        curves = []
        for place, family in enumerate(FAMILIES[system]):
            chosen = found.family == family.name
            # Families are spread sideways: many points have the same loss.
            curves.append(Curve(family.name, found.index[chosen] + 0.1 * place, found.level[chosen], style=_DOTS))
        labels = {"title": f"system {system}", "xlabel": "Hessian index", "ylabel": "level (share of the zero's)"}
        panels.append(Panel(curves=curves, axes=labels))
    return draw_curves([panels])


def valley_figure(n_descents: int = 24, n_steps: int = _N_STEPS) -> Figure:
    """System P's loss along the valley at infinity, and gradient descents, by the ratio of two parts of the values."""
    rho_SL, level_SL = _descents(n_descents, n_steps)
    is_solved = level_SL[-1] < (1 - 1 / _N) / _M
    is_trapped = ~is_solved & (rho_SL[-1] < 0) & (level_SL[-1] < 1 / _N)
    curves = [
        Curve(f"{text}: {int(chosen.sum())} of {n_descents}", rho_SL[:, chosen], level_SL[:, chosen])
        for text, chosen in (
            ("descents that solve", is_solved),
            ("descents in the valley", is_trapped),
            ("descents elsewhere", ~is_solved & ~is_trapped),
        )
        if chosen.any()
    ]
    rho = torch.linspace(-9.0, 4.0, 1301, dtype=torch.float64)
    curves.append(Curve("best q: L(rho)", rho, valley_level(rho, _N, _M)))
    levels = {"infimum": (1 - 1 / _N) / _M, "barrier: centred shift": centred_shift_level(_N, _M)}
    limits = {"xlim": (-9.0, 4.0), "ylim": (0.0, 0.3)}
    labels = {"xlabel": "rho = beta / alpha of the value matrix", "ylabel": "loss per predicted position"}
    return draw_curves([[Panel(curves=curves, heights=levels, axes=limits | labels)]])


def _descents(n_descents: int, n_steps: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gradient descent on system P's exact loss: rho and level, (S, L)."""
    system = PositionsOnly(_N, _M, softmax=False)
    objective, streams = objective_of(system), Streams(torch.arange(n_descents))
    point = {
        name: _DESCENT_SIGMA * streams.normal(name, tuple(value.shape)) for name, value in system.named_parameters()
    }
    rho, levels = [], []
    for _ in range(n_steps):
        losses, gradients = objective.evaluate(point, 0)
        b = point["v_NN"].sum((1, 2)) / _N
        a = point["v_NN"].diagonal(dim1=1, dim2=2).sum(1) - b
        rho.append((_N - 1) * b / a)
        levels.append(losses / (_M - 1))
        point = {name: value - _LEARNING_RATE * gradients[name] for name, value in point.items()}
    return torch.stack(rho).numpy(), torch.stack(levels).numpy()
