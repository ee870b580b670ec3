"""L-BFGS for packs. Each training has its own history and line search. Axes: L training, n parameter, C slot (place for
a pair).

Every training runs the algorithm of one call of `torch.optim.LBFGS(max_iter=n_steps,
line_search_fn="strong_wolfe").step`: the first iteration tries the step size `learning_rate * min(1, 1 / |gradient|_1)`
first, later ones `learning_rate` (PyTorch's default is 1); tolerances are PyTorch's; at most `n_steps * 5 // 4`
evaluations are made. A step of a training is an iteration.

In one evaluation of the pack, every training evaluates its loss once, at whatever stage of its line search it is; those
that have ended, or have reached the step to stop at, are left out unless the pack's width is fixed. Decisions are masks
on the device, from which the CPU reads two counts per evaluation.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from attnsweep.workloads.engine.layout import prefixed, selected, under
from attnsweep.workloads.engine.line_search import LineSearches, Points
from attnsweep.workloads.engine.optimizers import Evaluate, Optimizer, Settings, State

HISTORY_SIZE = 100
TOLERANCE_GRAD = 1e-7
TOLERANCE_CHANGE = 1e-9
_SMALLEST_CURVATURE = 1e-10
_FEWEST_SLOTS = 8


class Lbfgs(Optimizer):
    """L-BFGS with strong-Wolfe line searches. The loss must be the same function at every evaluation, so its batch is
    always that of step 0. Momentum, weight decay, schedules and clipping are not used.

    Source: Nocedal & Wright 2006, algorithm 7.5; `torch.optim.LBFGS`.
    """

    _point: Tensor
    _loss: Tensor
    _gradient: Tensor
    _direction: Tensor
    """Of the current iteration; between iterations, of the last one."""
    _search: LineSearches
    _pairs: "CurvaturePairs"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._most_evaluations = settings.n_steps * 5 // 4
        self._has_started = False
        self._is_over = torch.zeros_like(self.is_finite)
        self.n_evaluations = torch.zeros_like(self.steps)

    @property
    def is_running(self) -> Tensor:
        return ~self._is_over & self.is_finite

    def batch_step(self, step: int) -> int:  # noqa: ARG002
        return 0

    def descended(self) -> dict[str, Tensor]:
        if not self._has_started:
            return {}
        grad_norm = torch.linalg.vecdot(self._gradient, self._gradient).sqrt()
        return {"train_loss": self._loss, "train_grad_norm": grad_norm}

    def advance(self, parameters: State, evaluate: Evaluate, stop: int, most_evaluations: int) -> bool:
        if not self._has_started:
            if not most_evaluations:
                return False
            self._start(parameters, evaluate)
            most_evaluations -= 1
        self._begin_iterations(stop)
        while n_searching := self._n_searching():
            if most_evaluations <= 0:
                return False
            loss, gradient = self._evaluate_trials(parameters, evaluate, n_searching)
            most_evaluations -= 1
            self._end_iterations(self._search.observe(loss, gradient, torch.linalg.vecdot(gradient, self._direction)))
            self._begin_iterations(stop)
        self.is_finite = torch.isfinite(self._loss)
        for name, value in unflattened(self._point, parameters).items():
            parameters[name].copy_(value)
        return True

    def state_dict(self) -> Mapping[str, Tensor]:
        state = _tensors_of(self)
        if self._has_started:
            state |= prefixed("search", _tensors_of(self._search)) | prefixed("pairs", _tensors_of(self._pairs))
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if "_point" in state:
            self._begin(state["_point"], state["_loss"], state["_gradient"])
            _load(self._search, under("search", state))
            _load(self._pairs, under("pairs", state))
            self._pairs.n_used = int(self._pairs.end_L.max())
        _load(self, state)

    def select(self, lanes: Tensor) -> None:
        self.settings = self.settings.select(lanes)
        _load(self, selected(_tensors_of(self), lanes))
        if self._has_started:
            _load(self._search, selected(_tensors_of(self._search), lanes))
            self._pairs.select(lanes)

    def _start(self, parameters: State, evaluate: Evaluate) -> None:
        loss, gradients = evaluate(parameters, self.batch_step(0))
        self._begin(flattened(parameters), loss, flattened(gradients))
        self._is_over = ~torch.isfinite(loss) | self._is_optimal()
        self.n_evaluations += 1

    def _begin(self, point: Tensor, loss: Tensor, gradient: Tensor) -> None:
        """With an empty history and no line search under way."""
        self._has_started = True
        self._point, self._loss, self._gradient, self._direction = point, loss, gradient, torch.zeros_like(gradient)
        self._search = LineSearches(gradient, TOLERANCE_CHANGE)
        self._pairs = CurvaturePairs(gradient, min(HISTORY_SIZE, self.settings.n_steps))

    def _is_optimal(self) -> Tensor:
        return self._gradient.abs().amax(1) <= TOLERANCE_GRAD

    def _n_searching(self) -> int:
        # The host waits for the device only here.
        counts = torch.stack([self._search.is_open.sum(), self._pairs.end_L.max()])
        n_searching, self._pairs.n_used = counts.tolist()
        return int(n_searching)

    def _evaluate_trials(self, parameters: State, evaluate: Evaluate, n_searching: int) -> tuple[Tensor, Tensor]:
        step, is_open = self.batch_step(0), self._search.is_open
        trial = self._point.addcmul(self._search.step_size[:, None], self._direction)
        if self.keeps_width or n_searching == trial.shape[0]:
            loss, gradients = evaluate(unflattened(trial, parameters), step)
            return torch.where(is_open, loss, self._loss), _where(is_open, flattened(gradients), self._gradient)
        searching = torch.nonzero_static(is_open, size=n_searching)[:, 0]
        loss, gradients = evaluate(unflattened(trial[searching], parameters), step, searching)
        return (
            self._loss.index_copy(0, searching, loss),
            self._gradient.index_copy(0, searching, flattened(gradients)),
        )

    def _begin_iterations(self, until: int) -> None:
        """Starts a line search in each training that is between two iterations and before step `until`."""
        lanes = ~self._is_over & ~self._search.is_open & (self.steps < until)
        self._direction = _where(lanes, self._pairs.descent_direction(self._gradient), self._direction)
        slope = torch.linalg.vecdot(self._gradient, self._direction)
        is_flat = lanes & (slope > -TOLERANCE_CHANGE)
        self._is_over = self._is_over | is_flat
        learning_rate = self.settings.column("learning_rate")[:, 0]
        cautious = (1 / self._gradient.abs().sum(1)).clamp(max=1) * learning_rate
        first_trial = torch.where(self.steps == 0, cautious, learning_rate)
        start = Points(torch.zeros_like(slope), self._loss, slope, self._gradient)
        evaluations_left = self._most_evaluations - self.n_evaluations
        self._search.begin(lanes & ~is_flat, first_trial, start, self._direction.abs().amax(1), evaluations_left)

    def _end_iterations(self, lanes: Tensor) -> None:
        result = self._search.found()
        self._pairs.add(lanes, self._direction * result.at[:, None], result.gradient - self._gradient)
        stands_still = (self._search.direction_size * result.at.abs()) <= TOLERANCE_CHANGE
        is_level = (result.loss - self._loss).abs() < TOLERANCE_CHANGE
        self._loss = torch.where(lanes, result.loss, self._loss)
        self._gradient = _where(lanes, result.gradient, self._gradient)
        self._point = _where(lanes, self._point.addcmul(result.at[:, None], self._direction), self._point)
        self.steps = self.steps + lanes
        self.n_evaluations += self._search.n_evaluations * lanes
        at_limit = (self.steps >= self.settings.n_steps) | (self.n_evaluations >= self._most_evaluations)
        is_over = self._is_optimal() | stands_still | is_level | at_limit | ~torch.isfinite(self._loss)
        self._is_over = self._is_over | (lanes & is_over)


class CurvaturePairs:
    """Each training's latest `most_pairs` pairs (s, change of point; y, change of gradient), from which L-BFGS
    approximates the inverse Hessian.

    All trainings have equally many slots, filled oldest pair first. An empty one has weight 0 and changes no bit of the
    result, so a training does not depend on how many pairs the others have. How many are in use only the device knows:
    the caller sets `n_used` to the largest of `end_L` before every `add`.

    Source: Nocedal & Wright 2006, algorithm 7.4 and equation 7.20; pairs are refused like in `torch.optim.LBFGS`.
    """

    def __init__(self, like: Tensor, most_pairs: int) -> None:
        n_lanes, n_parameters = like.shape
        self._most_pairs, self.n_used = most_pairs, 0
        # More than `most_pairs`, so that pairs are moved to the front only when all are full.
        self._most_slots = most_pairs + max(_FEWEST_SLOTS, most_pairs // 4)
        self._s_CLn = like.new_zeros(0, n_lanes, n_parameters)
        self._y_CLn = like.new_zeros(0, n_lanes, n_parameters)
        self._rho_CL = like.new_zeros(0, n_lanes)
        self._scale_L = like.new_ones(n_lanes)
        self._lane_L = torch.arange(n_lanes, device=like.device)
        self.end_L = torch.zeros_like(self._lane_L)

    def add(self, lanes: Tensor, s: Tensor, y: Tensor) -> None:
        """Stores a pair for each training that `lanes` marks, except one without positive curvature."""
        if self.n_used == len(self._rho_CL):
            self._make_room()
        curvature = torch.linalg.vecdot(y, s)
        lanes = lanes & (curvature > _SMALLEST_CURVATURE)
        # A training without a new pair writes zeros to its first free slot: the host need not know which have one.
        here = (self.end_L, self._lane_L)
        self._s_CLn[here] = s.masked_fill(~lanes[:, None], 0.0)
        self._y_CLn[here] = y.masked_fill(~lanes[:, None], 0.0)
        self._rho_CL[here] = (1.0 / curvature).masked_fill(~lanes, 0.0)
        self._scale_L = torch.where(lanes, curvature / torch.linalg.vecdot(y, y), self._scale_L)
        is_beyond = lanes & (self.end_L >= self._most_pairs)
        oldest = ((self.end_L - self._most_pairs).clamp(min=0), self._lane_L)
        self._rho_CL[oldest] = self._rho_CL[oldest].masked_fill(is_beyond, 0.0)
        self.end_L = self.end_L + lanes
        self.n_used += 1

    def descent_direction(self, gradient: Tensor) -> Tensor:
        """Minus the gradient times the approximate inverse Hessian, which is the identity without pairs."""
        q = -gradient
        slots = range(self.n_used)
        weights: list[Tensor] = []
        for slot in reversed(slots):
            weight = torch.linalg.vecdot(self._s_CLn[slot], q) * self._rho_CL[slot]
            q.addcmul_(self._y_CLn[slot], weight[:, None], value=-1.0)
            weights.append(weight)
        q.mul_(self._scale_L[:, None])
        for slot in slots:
            weight = weights.pop() - torch.linalg.vecdot(self._y_CLn[slot], q) * self._rho_CL[slot]
            q.addcmul_(self._s_CLn[slot], weight[:, None])
        return q

    def select(self, lanes: Tensor) -> None:
        self._s_CLn, self._y_CLn, self._rho_CL = (table[:, lanes] for table in (self._s_CLn, self._y_CLn, self._rho_CL))
        self._scale_L, self.end_L, self._lane_L = self._scale_L[lanes], self.end_L[lanes], self._lane_L[: len(lanes)]

    def _make_room(self) -> None:
        tables, n_slots = (self._s_CLn, self._y_CLn, self._rho_CL), len(self._rho_CL)
        if n_slots < self._most_slots:
            n_more = min(max(_FEWEST_SLOTS, n_slots), self._most_slots - n_slots)
            self._s_CLn, self._y_CLn, self._rho_CL = (
                torch.cat([table, table.new_zeros(n_more, *table.shape[1:])]) for table in tables
            )
            return
        first_L = (self.end_L - self._most_pairs).clamp(min=0)
        kept_CL = first_L + torch.arange(self._most_pairs, device=first_L.device)[:, None]
        for table in tables:
            table[: self._most_pairs] = table[kept_CL, self._lane_L]
        self._rho_CL[self._most_pairs :] = 0.0
        self.end_L, self.n_used = self.end_L - first_L, self._most_pairs


def _tensors_of(owner: object) -> State:
    """Attributes that are tensors, or points, by name; no copies."""
    state: State = {}
    for name, value in vars(owner).items():
        if isinstance(value, Points):
            state |= prefixed(name, value._asdict())
        elif isinstance(value, Tensor):
            state[name] = value
    return state


def _load(owner: object, state: Mapping[str, Tensor]) -> None:
    for name, value in vars(owner).items():
        if isinstance(value, Points):
            setattr(owner, name, Points(**under(name, state)))
        elif isinstance(value, Tensor):
            setattr(owner, name, state[name])


def flattened(state: State) -> Tensor:
    """(L, n): all tensors of a training in one row."""
    return torch.cat([value.flatten(1) for value in state.values()], dim=1)


def unflattened(rows: Tensor, like: State) -> State:
    """The inverse of `flattened`, into the shapes of `like`."""
    sizes = [value[0].numel() for value in like.values()]
    parts = zip(like.items(), torch.split(rows, sizes, dim=1), strict=True)
    # Contiguous: for a strided view PyTorch may take another kernel than for a single training.
    return {name: part.reshape(-1, *value.shape[1:]).contiguous() for (name, value), part in parts}


def _where(lanes: Tensor, rows: Tensor, otherwise: Tensor) -> Tensor:
    return torch.where(lanes[:, None], rows, otherwise)
