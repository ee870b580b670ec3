"""L-BFGS for packs. Each training has its own history and line search. Axes: L training (lane), n parameter.

Every training runs the algorithm of one call of `torch.optim.LBFGS(max_iter=n_steps,
line_search_fn="strong_wolfe").step`: the first trial step is `learning_rate * min(1, 1 / |gradient|_1)`, later ones
`learning_rate` (PyTorch's default is 1); tolerances are PyTorch's; at most `n_steps * 5 // 4` evaluations are made. A
step of a training is an iteration of L-BFGS.

In one evaluation of the pack, every training evaluates its loss once, at whatever stage of its line search it is; those
that have ended, or have reached the last of the steps to stop at, are left out unless the pack's width is fixed. So a
training may run a few probes ahead. Its decisions are masks on the device, from which the CPU reads a few counts per
evaluation, because it must know how many trainings to evaluate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from attnsweep.workloads.engine.layout import prefixed, selected, under
from attnsweep.workloads.engine.line_search import LineSearches, Points
from attnsweep.workloads.engine.optimizers import Evaluate, Optimizer, Settings, State
from attnsweep.workloads.engine.quasi_newton import CurvaturePairs

HISTORY_SIZE = 100
TOLERANCE_GRAD = 1e-7
TOLERANCE_CHANGE = 1e-9


@dataclass(kw_only=True, slots=True)
class _Iterates:
    """Where L-BFGS stands in each training, one row each. `direction` is that of the current iteration; between
    iterations, of the last one. `is_over`: a tolerance, a limit or a loss that is not finite has ended it."""

    point: Tensor
    loss: Tensor
    gradient: Tensor
    direction: Tensor
    steps: Tensor
    is_over: Tensor

    def state_dict(self) -> State:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def select(self, lanes: Tensor) -> None:
        for name, value in selected(self.state_dict(), lanes).items():
            setattr(self, name, value)

    def shown(self) -> State:
        """Returns by name each training's current parameters, loss and gradient norm, for use outside of L-BFGS."""
        grad_norm = torch.linalg.vecdot(self.gradient, self.gradient).sqrt()
        return {"point": self.point, "train_loss": self.loss, "train_grad_norm": grad_norm}

    def is_optimal(self) -> Tensor:
        return self.gradient.abs().amax(1) <= TOLERANCE_GRAD


class Lbfgs(Optimizer):
    """L-BFGS with strong-Wolfe line searches. The loss must be the same function at every evaluation, so its batch is
    always that of step 0. Momentum, weight decay, schedules and clipping are not used.

    Source: Nocedal & Wright 2006, algorithm 7.5; `torch.optim.LBFGS`.
    """

    _now: _Iterates
    _search: LineSearches
    _pairs: CurvaturePairs
    _n_waiting: int
    """An upper bound of the number of trainings that are between two line searches and wait for the others."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._most_evaluations = settings.n_steps * 5 // 4
        self._is_running = torch.ones_like(self.is_finite)
        self._has_started = False
        self._shown_at: dict[int, State] = {}
        self._shown: State = {}
        self.n_evaluations = torch.zeros_like(self.steps)

    @property
    def is_running(self) -> Tensor:
        return self._is_running & self.is_finite

    def batch_step(self, step: int) -> int:  # noqa: ARG002
        return 0

    def descended(self) -> dict[str, Tensor]:
        return {name: value for name, value in self._shown.items() if name != "point"}

    def advance(self, parameters: State, evaluate: Evaluate, stops: Sequence[int], most_evaluations: int) -> bool:
        evaluations_left = most_evaluations
        if not self._has_started and evaluations_left:
            self._start(parameters, evaluate)
            evaluations_left -= 1
        if not self._has_started:
            return False
        if stops[0] == 0:
            self._shown = self._now.shown()
            return True
        if self._n_waiting:
            self._begin_iterations(stops[-1])
        n_behind, n_searching = self._counted(stops, torch.zeros_like(self._now.is_over))
        while n_behind:
            if evaluations_left <= 0:
                return False
            loss, gradient = self._evaluate_trials(parameters, evaluate, n_searching)
            evaluations_left -= 1
            slope = torch.linalg.vecdot(gradient, self._now.direction)
            ended = self._search.observe(loss, gradient, slope)
            self._end_iterations(ended)
            self._begin_iterations(stops[-1])
            n_behind, n_searching = self._counted(stops, ended)
        self._look_back(parameters, stops[0])
        return True

    def state_dict(self) -> Mapping[str, Tensor]:
        state = {**super().state_dict(), "is_running": self._is_running, "n_evaluations": self.n_evaluations}
        if self._has_started:
            state |= prefixed("now", self._now.state_dict())
            state |= prefixed("search", self._search.state_dict())
            state |= prefixed("pairs", self._pairs.state_dict())
        for stop, shown in self._shown_at.items():
            state |= prefixed(f"seen_at/{stop}", shown)
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict(state)
        self._is_running, self.n_evaluations = state["is_running"], state["n_evaluations"]
        now = under("now", state)
        if now:
            self._begin(_Iterates(**now))
            self._search.load_state_dict(under("search", state))
            self._pairs.load_state_dict(under("pairs", state))
        stops = {name.partition("/")[0] for name in under("seen_at", state)}
        self._shown_at = {int(stop): under(f"seen_at/{stop}", state) for stop in stops}

    def select(self, lanes: Tensor) -> None:
        super().select(lanes)
        self.n_evaluations, self._is_running = self.n_evaluations[lanes], self._is_running[lanes]
        if self._has_started:
            self._now.select(lanes)
            self._search.select(lanes)
            self._pairs.select(lanes)
            self._shown = selected(self._shown, lanes)
            self._shown_at = {stop: selected(shown, lanes) for stop, shown in self._shown_at.items()}

    def _start(self, parameters: State, evaluate: Evaluate) -> None:
        loss, gradients = evaluate(parameters, self.batch_step(0))
        gradient = flattened(gradients)
        start = _Iterates(
            point=flattened(parameters),
            loss=loss,
            gradient=gradient,
            direction=torch.zeros_like(gradient),
            steps=torch.zeros_like(self.steps),
            is_over=~torch.isfinite(loss),
        )
        start.is_over |= start.is_optimal()
        self.n_evaluations += 1
        self._begin(start)

    def _begin(self, iterates: _Iterates) -> None:
        """Starts L-BFGS at the given parameters and gradients, with an empty history and no line search under way."""
        self._now = iterates
        self._search = LineSearches(iterates.gradient, TOLERANCE_CHANGE)
        self._pairs = CurvaturePairs(iterates.gradient, min(HISTORY_SIZE, self.settings.n_steps))
        self._n_waiting = len(iterates.loss)
        self._has_started = True

    def _counted(self, stops: Sequence[int], ended: Tensor) -> tuple[int, int]:
        """Counts the trainings before `stops[0]`, and those that search; stores the state of those at a stop."""
        now = self._now
        behind = ~now.is_over & (now.steps < stops[0])
        at_stops = [ended & (now.steps == stop) for stop in stops]
        is_open = self._search.is_open
        masks = torch.stack([behind, is_open, ~is_open & ~now.is_over, *at_stops])
        # The host waits for the device only here, once for each evaluation of the loss.
        numbers = torch.cat([masks.sum(1), self._pairs.counts()]).tolist()
        n_behind, n_searching, self._n_waiting, *n_at_stops, n_used, n_full = numbers
        self._pairs.set_counts(n_used, n_full)
        for stop, is_there, n_there in zip(stops, at_stops, n_at_stops, strict=True):
            if n_there:
                shown = now.shown()
                self._shown_at[stop] = _state_where(is_there, shown, self._shown_at.get(stop, shown))
        return n_behind, n_searching

    def _evaluate_trials(self, parameters: State, evaluate: Evaluate, n_searching: int) -> tuple[Tensor, Tensor]:
        now, step = self._now, self.batch_step(0)
        trial = now.point.addcmul(self._search.step_size[:, None], now.direction)
        if self.keeps_width or n_searching == trial.shape[0]:
            loss, gradients = evaluate(unflattened(trial, parameters), step)
            gradient = flattened(gradients)
            if n_searching == trial.shape[0]:
                return loss, gradient
            is_open = self._search.is_open
            return torch.where(is_open, loss, now.loss), _where(is_open, gradient, now.gradient)
        searching = torch.nonzero_static(self._search.is_open, size=n_searching)[:, 0]
        loss, gradients = evaluate(unflattened(trial[searching], parameters), step, searching)
        return now.loss.index_copy(0, searching, loss), now.gradient.index_copy(0, searching, flattened(gradients))

    def _begin_iterations(self, until: int) -> None:
        """Starts a line search in each training that is between two iterations and has not reached step `until`."""
        now = self._now
        lanes = ~now.is_over & ~self._search.is_open & (now.steps < until)
        now.direction = _where(lanes, self._pairs.descent_direction(now.gradient), now.direction)
        slope = torch.linalg.vecdot(now.gradient, now.direction)
        is_flat = lanes & (slope > -TOLERANCE_CHANGE)
        now.is_over = now.is_over | is_flat
        learning_rate = self.settings.column("learning_rate")[:, 0]
        cautious = (1 / now.gradient.abs().sum(1)).clamp(max=1) * learning_rate
        first_trial = torch.where(now.steps == 0, cautious, learning_rate)
        start = Points(torch.zeros_like(slope), now.loss, slope, now.gradient)
        evaluations_left = self._most_evaluations - self.n_evaluations
        self._search.begin(lanes & ~is_flat, first_trial, start, now.direction.abs().amax(1), evaluations_left)

    def _end_iterations(self, lanes: Tensor) -> None:
        now, result = self._now, self._search.found()
        self._pairs.add(lanes, now.direction * result.at[:, None], result.gradient - now.gradient)
        stands_still = (self._search.direction_size * result.at.abs()) <= TOLERANCE_CHANGE
        is_level = (result.loss - now.loss).abs() < TOLERANCE_CHANGE
        now.loss = torch.where(lanes, result.loss, now.loss)
        now.gradient = _where(lanes, result.gradient, now.gradient)
        now.point = _where(lanes, now.point.addcmul(result.at[:, None], now.direction), now.point)
        now.steps = now.steps + lanes
        self.n_evaluations += self._search.n_evaluations * lanes
        at_limit = (now.steps >= self.settings.n_steps) | (self.n_evaluations >= self._most_evaluations)
        is_over = now.is_optimal() | stands_still | is_level | at_limit | ~torch.isfinite(now.loss)
        now.is_over = now.is_over | (lanes & is_over)

    def _look_back(self, parameters: State, stop: int) -> None:
        """Copies into `parameters` the weights at step `stop`, also of trainings that have gone further."""
        now = self._now
        has_gone_on = now.steps > stop
        self.steps = now.steps.clamp(max=stop)
        self.is_finite = has_gone_on | torch.isfinite(now.loss)
        self._is_running = has_gone_on | ~now.is_over
        here = now.shown()
        self._shown = _state_where(has_gone_on, self._shown_at.pop(stop, here), here)
        for name, value in unflattened(self._shown["point"], parameters).items():
            parameters[name].copy_(value)


def flattened(state: State) -> Tensor:
    """Concatenates all tensors of each training into one row."""
    return torch.cat([value.flatten(1) for value in state.values()], dim=1)


def unflattened(rows: Tensor, like: State) -> State:
    """Splits rows of numbers, one per training, into tensors like those in `like`."""
    sizes = [value[0].numel() for value in like.values()]
    parts = zip(like.items(), torch.split(rows, sizes, dim=1), strict=True)
    # Contiguous: for a strided view PyTorch may take another kernel than for a single training.
    return {name: part.reshape(-1, *value.shape[1:]).contiguous() for (name, value), part in parts}


def _where(lanes: Tensor, rows: Tensor, otherwise: Tensor) -> Tensor:
    return torch.where(lanes.view(-1, *[1] * (rows.dim() - 1)), rows, otherwise)


def _state_where(lanes: Tensor, state: State, otherwise: State) -> State:
    return {name: _where(lanes, value, otherwise[name]) for name, value in state.items()}
