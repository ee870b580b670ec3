"""Fused L-BFGS: each lane evaluates exactly the points that `torch.optim.LBFGS` alone would, whatever its neighbours
do."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.lbfgs import Lbfgs
from attnsweep.workloads.engine.optimizers import Settings, State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from tests.workloads.engine.lbfgs_problems import PROBLEMS, Problem, Trace, run_alone


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


def test_a_lane_that_overflows_ends_alone_as_torch_would() -> None:
    overflowing = replace(PROBLEMS[8], learning_rate=20.0)
    fused = Fused([PROBLEMS[4], overflowing, PROBLEMS[5]], 40).advance(40)
    assert fused.optimizer.is_finite.tolist() == [True, False, True]
    assert len(fused.traces[1].points) == len(run_alone(overflowing, 40).points)
    clean = Fused([PROBLEMS[4], PROBLEMS[5]], 40).advance(40)
    for own, other in zip(clean.traces, (fused.traces[0], fused.traces[2]), strict=True):
        assert torch.equal(torch.stack(own.points), torch.stack(other.points))


def _trained(n_lanes: int, **values: Value) -> PackResult:
    settings: dict[str, Value] = {"optimizer": "lbfgs", "learning_rate": 1.0, "n_steps": 30}
    parameters = defaults(CategoryPairs(), **(settings | values))
    return Pack(CategoryPairs(), [Training(parameters, seed) for seed in range(n_lanes)]).train_to_end(7)


def test_a_pack_lets_lanes_go_that_lbfgs_has_ended() -> None:
    result = _trained(8, init_sigma=1e-4)
    assert (result.n_steps < 30).any()
    assert (result.diverged_step == -1).all()
    assert np.isfinite(result.last("eval_loss")).all()
