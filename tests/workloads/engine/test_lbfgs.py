"""Fused L-BFGS: each lane evaluates exactly the points that `torch.optim.LBFGS` alone would, whatever its neighbours
do."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.lbfgs import _strong_wolfe

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Batch, Lanes, Training
from attnsweep.workloads.engine.lbfgs import CurvaturePairs, Lbfgs
from attnsweep.workloads.engine.line_search import ARMIJO, LineSearches, Points
from attnsweep.workloads.engine.optimizers import Settings, State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from tests.workloads.engine.lbfgs_problems import PROBLEMS, Problem, Trace, random_problem, run_alone


class Fused:
    """Runs problems in one pack; the parameters of each are split over two tensors."""

    def __init__(self, problems: Sequence[Problem], n_steps: int) -> None:
        self._problems = list(problems)
        self.traces = [Trace() for _ in problems]
        self.n_evaluations = 0
        starts = torch.stack([problem.start for problem in problems])
        self.parameters = {"a": starts[:, :4].reshape(-1, 2, 2).clone(), "b": starts[:, 4:].clone()}
        learning_rate = torch.tensor([problem.learning_rate for problem in problems], dtype=starts.dtype)
        self.optimizer = Lbfgs(Settings.plain(learning_rate, n_steps))
        self._in_pack = list(range(len(problems)))

    def advance(self, *stops: int) -> "Fused":
        for stop in stops:
            while not self.optimizer.advance(self.parameters, self.evaluate, stop, 5):
                pass
        for lane, problem in enumerate(self._in_pack):
            trace = self.traces[problem]
            trace.end = torch.cat([self.parameters["a"][lane].flatten(), self.parameters["b"][lane]])
            trace.n_steps = int(self.optimizer.steps[lane])
        return self

    def select(self, lanes: list[int]) -> None:
        self.optimizer.select(torch.tensor(lanes))
        self.parameters = {name: value[lanes] for name, value in self.parameters.items()}
        self._in_pack = [self._in_pack[lane] for lane in lanes]

    def evaluate(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:
        assert step == 0, "a line search needs one batch throughout"
        self.n_evaluations += 1
        in_pack = range(len(self._in_pack)) if lanes is None else lanes.tolist()
        rows = torch.cat([parameters["a"].flatten(1), parameters["b"]], dim=1).requires_grad_()
        losses = []
        for row, lane in zip(rows, in_pack, strict=True):
            problem = self._in_pack[lane]
            losses.append(self._problems[problem].objective(row))
            self.traces[problem].points.append(row.detach().clone())
            self.traces[problem].losses.append(losses[-1].item())
        loss = torch.stack(losses)
        (gradient,) = torch.autograd.grad(loss.sum(), rows)
        return loss.detach(), {"a": gradient[:, :4].reshape(-1, 2, 2), "b": gradient[:, 4:]}


@pytest.mark.slow
@pytest.mark.parametrize("stops", [(50,), (0, 1, 2, 3, 7, 25, 50)])
def test_ten_problems_in_one_pack_each_follow_torch_alone(stops: tuple[int, ...]) -> None:
    fused = Fused(PROBLEMS, 50).advance(*stops)
    alone = [run_alone(problem, 50) for problem in PROBLEMS]
    for own, reference in zip(fused.traces, alone, strict=True):
        assert len(own.points) == len(reference.points)
        torch.testing.assert_close(torch.stack(own.points), torch.stack(reference.points), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(own.losses, reference.losses, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(own.end, reference.end, rtol=1e-6, atol=1e-6)
        # PyTorch counts the iteration that finds its direction flat and takes no step.
        assert reference.n_steps - own.n_steps in (0, 1)
    assert fused.optimizer.n_evaluations.tolist() == [len(reference.points) for reference in alone]
    assert len({reference.n_steps for reference in alone}) > 5


@pytest.mark.slow
def test_lanes_end_by_the_tolerances_that_end_torch() -> None:
    # Seed 147 amplifies rounding: PyTorch's own result changes by 1.7 if its start changes by 2e-16.
    problems = [random_problem(seed) for seed in range(147)]
    fused = Fused(problems, 12).advance(12)
    for own, problem in zip(fused.traces, problems, strict=True):
        reference = run_alone(problem, 12)
        assert len(own.points) == len(reference.points)
        torch.testing.assert_close(own.end, reference.end, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.slow
def test_a_stop_shows_each_lane_as_it_was_there() -> None:
    fused, stops = Fused(PROBLEMS, 50), (0, 3, 7, 12, 20, 50)
    for stop in stops:
        fused.optimizer.advance(fused.parameters, fused.evaluate, stop, 1000)
        alone = Fused(PROBLEMS, 50).advance(stop)
        for name, value in alone.parameters.items():
            assert torch.equal(fused.parameters[name], value)
        assert torch.equal(fused.optimizer.steps, alone.optimizer.steps)
        assert torch.equal(fused.optimizer.is_running, alone.optimizer.is_running)


@pytest.mark.slow
def test_lanes_can_leave_at_any_stop() -> None:
    whole = Fused(PROBLEMS, 50).advance(50)
    thinned = Fused(PROBLEMS, 50)
    thinned.select([9, 1, 2, 3, 6, 5])
    thinned.advance(4)
    thinned.select([0, 2, 3, 4])
    thinned.advance(50)
    for problem in (9, 2, 3, 6):
        assert torch.equal(torch.stack(whole.traces[problem].points), torch.stack(thinned.traces[problem].points))
        assert whole.traces[problem].n_steps == thinned.traces[problem].n_steps
    assert len(thinned.traces[1].points) < len(whole.traces[1].points)


def test_a_lane_that_starts_at_its_minimum_takes_no_step() -> None:
    at_minimum = replace(PROBLEMS[0], start=torch.full((10,), 1e-8, dtype=torch.float64))
    fused = Fused([at_minimum, PROBLEMS[1]], 20).advance(20)
    assert fused.optimizer.steps.tolist() == [0, run_alone(PROBLEMS[1], 20).n_steps]
    assert fused.optimizer.n_evaluations[0] == 1
    assert fused.optimizer.is_finite.all()
    torch.testing.assert_close(fused.traces[0].end, at_minimum.start, rtol=0, atol=0)


def test_a_lane_that_overflows_ends_alone_as_torch_would() -> None:
    overflowing = replace(PROBLEMS[8], learning_rate=20.0)
    fused = Fused([PROBLEMS[4], overflowing, PROBLEMS[5]], 40).advance(40)
    assert fused.optimizer.is_finite.tolist() == [True, False, True]
    assert len(fused.traces[1].points) == len(run_alone(overflowing, 40).points)
    clean = Fused([PROBLEMS[4], PROBLEMS[5]], 40).advance(40)
    for own, other in zip(clean.traces, (fused.traces[0], fused.traces[2]), strict=True):
        assert torch.equal(torch.stack(own.points), torch.stack(other.points))


def test_old_pairs_are_forgotten_lane_by_lane() -> None:
    generator = torch.Generator().manual_seed(0)
    like = torch.zeros(4, 6, dtype=torch.float64)
    fused = CurvaturePairs(like, most_pairs=3)
    plain: list[list[tuple[Tensor, Tensor]]] = [[] for _ in like]
    for round_ in range(60):
        if round_ == 30:
            fused.select(torch.tensor([2, 0]))
            plain = [plain[2], plain[0]]
        s, y, gradient = torch.randn(3, len(plain), 6, generator=generator, dtype=torch.float64)
        lanes = torch.rand(len(plain), generator=generator) < 0.7
        fused.n_used = int(fused.end_L.max())
        fused.add(lanes, s, y)
        for lane, pairs in enumerate(plain):
            if lanes[lane] and s[lane] @ y[lane] > 1e-10:
                pairs.append((s[lane], y[lane]))
        expected = [_two_loops(pairs[-3:], row) for pairs, row in zip(plain, gradient, strict=True)]
        torch.testing.assert_close(fused.descent_direction(gradient), torch.stack(expected), rtol=1e-9, atol=1e-12)


def _two_loops(pairs: list[tuple[Tensor, Tensor]], gradient: Tensor) -> Tensor:
    """Nocedal & Wright 2006, algorithm 7.4, for one problem."""
    q, weights = -gradient, []
    for s, y in reversed(pairs):
        weights.append(s @ q / (s @ y))
        q = q - weights[-1] * y
    if pairs:
        s, y = pairs[-1]
        q = q * (s @ y) / (y @ y)
    for s, y in pairs:
        q = q + s * (weights.pop() - y @ q / (s @ y))
    return q


def _trained(n_lanes: int, **values: Value) -> PackResult:
    settings: dict[str, Value] = {"optimizer": "lbfgs", "learning_rate": 1.0, "n_steps": 30}
    parameters = defaults(CategoryPairs(), **(settings | values))
    return Pack(CategoryPairs(), [Training(parameters, seed) for seed in range(n_lanes)]).train_to_end(7)


@pytest.mark.slow
@pytest.mark.parametrize("expectation", ["population", "sampled"])
def test_a_pack_trains_each_lane_as_torch_does_alone(expectation: str) -> None:
    values: dict[str, Value] = {"expectation": expectation, "batch_size": 8, "n_positions": 5, "n_categories": 3}
    result = _trained(6, stop_when_solved=False, **values)
    # Not seed 0: a change of its start by 1e-15 changes PyTorch's own result by 3%.
    for seed in range(1, 6):
        training = Training(defaults(CategoryPairs(), optimizer="lbfgs", **values), seed)
        lanes = Lanes([training], torch.device("cpu"))
        module = CategoryPairs().build(training.parameters).double()
        start = CategoryPairs().initial(module, lanes)
        batch = {name: value[0] for name, value in CategoryPairs().batch(lanes, 0).items()}
        module.load_state_dict({name: value[0] for name, value in start.items()})
        optimizer = torch.optim.LBFGS(module.parameters(), max_iter=30, line_search_fn="strong_wolfe")

        def closure(
            optimizer: torch.optim.LBFGS = optimizer, module: nn.Module = module, batch: Batch = batch
        ) -> Tensor:
            optimizer.zero_grad()
            loss = CategoryPairs().loss(module, batch)
            loss.backward()
            return loss

        optimizer.step(closure)
        assert result.last("loss")[seed] == pytest.approx(closure().item(), rel=1e-6, abs=1e-12)
        assert 0 <= optimizer.state[next(module.parameters())]["n_iter"] - result.n_steps[seed] <= 1


def test_a_pack_lets_lanes_go_that_lbfgs_has_ended() -> None:
    result = _trained(8, init_sigma=1e-4)
    assert (result.n_steps < 30).any()
    assert (result.diverged_step == -1).all()
    assert np.isfinite(result.last("eval_loss")).all()


N_LANES = 300
TOLERANCE_CHANGE = 1e-3


def _wiggly(x: Tensor, shape: Tensor) -> Tensor:
    """A function with hills and valleys, and in one of three lanes a kink or a wall; x (2,), shape (4,)."""
    tilt, height, frequency, kind = shape.unbind(-1)
    base = 0.1 * x.square().sum(-1) + tilt * x.sum(-1) + height * torch.sin(frequency[..., None] * x).sum(-1)
    kinked = base + 20 * (x[..., 0] - 1).abs()
    room = torch.where(kind < 0.75, 1.0, 2 - x[..., 0])
    return torch.where(kind < 0.5, base, torch.where(kind < 0.75, kinked, base - room.sqrt()))


def _values(x: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    loss = _wiggly(x, shape)
    (gradient,) = torch.autograd.grad(loss.sum(), x)
    return loss.detach(), gradient


@pytest.mark.slow
@pytest.mark.sample("2")
@pytest.mark.parametrize("most_interpolations", [1, 2, 25])
def test_every_search_ends_where_torch_alone_would(most_interpolations: int) -> None:
    generator = torch.Generator().manual_seed(most_interpolations)
    shape_L4 = torch.rand(N_LANES, 4, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 3.0, 8.0, 1.0])
    x = torch.randn(N_LANES, 2, generator=generator, dtype=torch.float64).clamp(max=1.5)
    first_trial = 10 ** (4 * torch.rand(N_LANES, generator=generator, dtype=torch.float64) - 3)
    loss, gradient = _values(x, shape_L4)
    direction = -gradient
    slope = (gradient * direction).sum(1)

    searches = LineSearches(gradient, TOLERANCE_CHANGE)
    limit = torch.full((N_LANES,), most_interpolations)
    # Twice, so that the second search starts with the state that the first left.
    start, direction_size = Points(torch.zeros_like(loss), loss, slope, gradient), direction.abs().amax(1)
    for _ in range(2):
        searches.begin(torch.ones_like(limit).bool(), first_trial, start, direction_size, limit)
        while searches.is_open.any():
            trial_loss, trial_gradient = _values(x + searches.step_size[:, None] * direction, shape_L4)
            searches.observe(trial_loss, trial_gradient, (trial_gradient * direction).sum(1))

    found = searches.found()
    ended_early = 0
    for lane in range(N_LANES):

        def evaluate(x: Tensor, t: Tensor, d: Tensor, shape: Tensor = shape_L4[lane]) -> tuple[float, Tensor]:
            loss, gradient = _values((x + t * d)[None], shape[None])
            return loss.item(), gradient[0]

        begun = (x[lane], first_trial[lane], direction[lane], loss[lane].item(), gradient[lane], slope[lane])
        tolerances = {"tolerance_change": TOLERANCE_CHANGE, "max_ls": most_interpolations}
        their_loss, their_gradient, step_size, n_evaluations = _strong_wolfe(evaluate, *begun, **tolerances)
        assert n_evaluations == searches.n_evaluations[lane]
        ours = torch.cat([found.at[[lane]], found.loss[[lane]], found.gradient[lane]])
        theirs = torch.cat([torch.as_tensor([step_size, their_loss], dtype=torch.float64), their_gradient])
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9, equal_nan=True)
        ended_early += n_evaluations <= most_interpolations
    assert 0.2 * N_LANES < ended_early < N_LANES or most_interpolations < 25


@pytest.mark.parametrize(("share", "is_taken"), [(0.5, False), (2.0, True)])
def test_a_step_is_taken_that_gains_what_is_asked_for(share: float, is_taken: bool) -> None:
    """A flat function, lower beyond the start by a share of the sufficient decrease."""
    one, yes = torch.ones(1, dtype=torch.float64), torch.tensor([True])
    searches = LineSearches(one[None], TOLERANCE_CHANGE)
    searches.begin(yes, one, Points(0 * one, 0 * one, -one, -one[None]), one, torch.tensor([25]))
    ended = searches.observe(-share * ARMIJO * one, 0 * one[None], 0 * one)
    assert ended.tolist() == [is_taken]
