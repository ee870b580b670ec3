"""The studies of the metric and of precision, at a small size."""

import io
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from attnsweep.reproduction.studies import metric, metric_laws, precision
from attnsweep.reproduction.studies.metric_laws import RunawayLaw, coordinates, factored_exponent
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.parameters import Value


@pytest.mark.scale
def test_the_laws_of_small_starts_show_at_a_small_size(tmp_path: Path) -> None:
    size = metric.Size(
        n_draws=1,
        n_merged=96,
        n_factored=16,
        n_escape=12,
        n_flow=64,
        merged=(0.1, 0.01),
        factored=(0.1,),
        merged_escape=(1e-2, 1e-4),
        factored_escape=(0.1, 0.05),
    )
    found = metric.reproduce(tmp_path, Console(file=io.StringIO()), size)
    rows = {row.name: row for row in found.rows}
    shares = [float(rows[f"draw 1, merged, sigma {sigma}: runaway"].ours) for sigma in ("0.1", "0.01")]
    assert 0.4 > shares[0] > shares[1] > 0
    # ln(1e2) / ln(1 + 0.03 * 3.97) steps between the two.
    per_e = rows["draw 1, merged: steps per factor e of sigma"]
    assert per_e.published == "8.881 (derived)"
    assert per_e.ours == pytest.approx(8.9, abs=1.0)
    assert rows["draw 1, factored: - slope of log T against log sigma"].ours == pytest.approx(1.3, abs=0.3)
    assert {path.name for path in found.figures} == {"metric.png", "metric.svg"}


@pytest.mark.slow
def test_the_study_of_full_models_has_a_border_for_each_form() -> None:
    small: dict[str, Value] = {"n_categories": 3, "n_positions": 4, "batch_size": 8, "n_steps": 3}
    small |= {"expectation": "fixed_sample", "optimizer": "lbfgs", "learning_rate": 1.0}
    found = precision.reproduce_forms(Path(), Console(file=io.StringIO()), (1e-2, 1e-6), range(2), small)
    borders = [row for row in found.rows if "border in" in row.name]
    assert [row.name.split(":")[0] for row in borders] == [
        f"{variant}, {form}" for variant in ("solution_3", "solution_1") for form in ("factored", "merged")
    ]
    # Two trainings at each sigma bound a border from one side.
    assert all(0.9e-6 < float(str(row.ours).removeprefix("above ")) < 1.1e-2 for row in borders)


LAW = RunawayLaw.of(metric.N, metric.M, metric.LEARNING_RATE)


def test_the_derived_rates_are_those_of_the_source() -> None:
    rates = [math.expm1(growth) / metric.LEARNING_RATE for growth in LAW.growth]
    assert rates == pytest.approx([3.9726, 2.5017], abs=1e-4)
    assert pytest.approx(LAW.growth[0]) == metric.GROWTH_PLUS
    assert LAW.exponent == pytest.approx(0.556, abs=1e-3)


def test_the_derived_shares_are_those_that_others_measured() -> None:
    # 12,288 trainings each, of other seeds than ours.
    measured = {1e-2: 0.1261, 1e-3: 0.0403, 1e-4: 0.0127, 1e-5: 0.00358}
    for sigma, share in measured.items():
        assert abs(LAW.share(sigma) - share) < 2.0 * math.sqrt(share / 12_288), sigma
    slopes = [math.log10(LAW.share(10 * sigma) / LAW.share(sigma)) for sigma in measured]
    assert slopes == pytest.approx([0.345, 0.509, 0.551, 0.5555], abs=1e-3)


def test_descent_of_the_four_numbers_is_that_of_the_workload() -> None:
    N, M, learning_rate = 4, 5, 0.07
    system = PositionsOnly(N, M, softmax=False, qk_rank=None).double()
    on, off, alpha, beta = 0.3, -0.2, 0.5, -0.4
    shift, mean = torch.eye(M, M - 1, dtype=torch.float64), torch.full((N, N), 1 / N, dtype=torch.float64)
    with torch.no_grad():
        system.q_MK.copy_(off + (on - off) * shift)
        system.v_NN.copy_(alpha * torch.eye(N) + (beta - alpha) * mean)
    start = coordinates(system.q_MK.detach()[None], system.v_NN.detach()[None])
    descent = metric_laws._Descent(N, M, learning_rate)
    optimizer = torch.optim.SGD(system.parameters(), lr=learning_rate)
    for _ in range(3):
        optimizer.zero_grad()
        system.population_loss().backward()
        optimizer.step()
    expected = coordinates(system.q_MK.detach()[None], system.v_NN.detach()[None])
    assert descent.after(start, 3) == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_the_law_expects_each_training_from_its_start() -> None:
    sigma, seeds = 1e-2, range(128)
    is_away = metric._train("merged", sigma, seeds, 600)[0] == "runaway"
    faster, slower = metric._amplitudes(LAW, seeds)
    assert faster.std() == pytest.approx(1.0, abs=0.15)
    expected = LAW.forecast(sigma * faster, sigma * slower)
    assert 8 < is_away.sum() < 30
    assert (is_away == expected).all()
    # A law with the two signs exchanged, or with another exponent, would not.
    assert (LAW.forecast(sigma * faster, -sigma * slower) != expected).sum() > 5


def test_the_interval_of_a_corrected_share_covers_and_a_slope_through_counts_follows_its_seeds() -> None:
    draw, n, sigmas = np.random.default_rng(0), 4096, (1e-2, 1e-3, 1e-4)
    covered, local, through_counts = [], [], []
    for _ in range(100):
        faster, slower = draw.normal(size=(2, n))
        forecasts = []
        for sigma in sigmas:
            expected = LAW.forecast(sigma * faster, sigma * slower)
            # What the law does not know: one start of 500 ends otherwise, as often one way as the other.
            flips = draw.random(n) < np.where(expected, 1, expected.mean() / (1 - expected.mean())) / 500
            forecasts.append(metric_laws.Forecast(sigma=sigma, is_away=expected ^ flips, expected=expected))
        rows = {row.name: row for row in metric_laws.law_rows(LAW, forecasts)}
        row = rows["merged: slope of log share against log sigma, 0.0001 to 0.001"]
        assert row.low is not None
        assert row.high is not None
        covered.append(bool(row.agrees))
        local.append(float(row.ours))
        counts = np.array([each.is_away.sum() for each in forecasts[1:]], dtype=float)
        through_counts.append(metric_laws.fitted_slope(np.array(sigmas[1:]), counts, np.full(2, float(n)))[0])
    assert np.mean(covered) > 0.93
    assert np.std(local) < 0.5 * np.std(through_counts)


def test_the_flow_turns_to_the_faster_mode_the_longer_it_grows() -> None:
    header, *lines = metric_laws.opposed_shares(4, 5, 256)
    assert len(header) == 5
    opposed, strongly = ([float(line[column]) for line in lines] for column in (1, 3))
    assert opposed[0] > 0.05
    assert opposed[-1] < opposed[0] / 3
    assert all(one >= other for one, other in zip(opposed, strongly, strict=True))


def test_the_exponent_of_the_factored_share_is_derived() -> None:
    assert factored_exponent(10, 20) == pytest.approx(1.5685, abs=1e-4)
    assert factored_exponent(4, 12) > 0


def test_the_flow_leaves_the_border_at_the_derived_rate() -> None:
    N, M, K = 10, 20, 19
    shift, ones = np.eye(M, K), np.ones((M, K))
    # Five directions share k^t u, in proportions that the derivation does not use.
    z = np.linalg.qr(np.column_stack([np.ones(K), np.random.default_rng(0).normal(size=(K, 5))]))[0].T
    shares = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    weight = np.append(2 / (M * K), shares / shares.sum() * (1 / (N - 1) + 2 * (M - 2) / (M * M * K)))
    u = np.sqrt(weight)[:, None] * z
    a, b = 1.0, -2 / M
    k = u @ (a * shift + b * ones).T
    b += 1e-9
    path = []
    while a < 40:
        pull, logits = a * shift + b * ones, k.T @ u
        moves = u @ pull.T, k @ pull, (N - 1) * float((logits * shift).sum()), float(logits.sum())
        k, u, a, b = (value + 2e-3 / a * move for value, move in zip((k, u, a, b), moves, strict=True))
        path.append((a, abs(b / a + 2 / M)))
    (a0, one), (a1, two) = path[len(path) // 2], path[-1]
    assert math.log(two / one) / math.log(a1 / a0) == pytest.approx(factored_exponent(N, M), abs=0.01)


def test_a_slope_of_exact_powers_is_found() -> None:
    slope, half = metric_laws.fitted_slope(np.array([1e-2, 1e-3, 1e-4]), np.array([1e4, 1e3, 1e2]), np.full(3, 1e6))
    assert slope == pytest.approx(1.0)
    assert 0 < half < 0.1


@pytest.mark.parametrize("form", ["merged", "factored"])
def test_the_derived_border_is_where_the_mean_square_of_the_gradient_is_just_visible(form: str) -> None:
    N, M, n, sigma = precision.N, precision.M, 2000, 1e-4
    system = PositionsOnly(N, M, softmax=False, qk_rank=M if form == "factored" else None).double()
    streams = Streams(torch.arange(n))
    starts = {
        name: (sigma * streams.normal(name, tuple(value.shape))).requires_grad_()
        for name, value in system.named_parameters()
    }

    def loss(values: dict[str, torch.Tensor]) -> torch.Tensor:
        found: torch.Tensor = torch.func.functional_call(_Loss(system), {f"system.{k}": v for k, v in values.items()})
        return found

    gradients = torch.autograd.grad(torch.vmap(loss)(starts).sum(), list(starts.values()))
    square = sum(float(each.square().sum()) for each in gradients) / n
    at_border = square * (precision.derived_border("float64", form) / sigma) ** (2 if form == "merged" else 4)
    assert at_border == pytest.approx(1e-9, rel=0.15)


class _Loss(torch.nn.Module):
    def __init__(self, system: PositionsOnly) -> None:
        super().__init__()
        self.system = system

    def forward(self) -> torch.Tensor:
        return self.system.population_loss()


@pytest.mark.scale
def test_a_float32_state_frees_what_gradient_descent_in_bfloat16_holds() -> None:
    border, with_state = precision.first_order_rows((0.1, 0.005), range(4))
    assert 0.005 < float(border.ours) < 0.1
    assert with_state.ours == 0.0
