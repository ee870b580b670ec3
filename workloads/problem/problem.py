"""The base class of the workloads that `attnsweep.problem` makes. Axes: L training, N layer, H head, P place in an
order."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import vmap

from attnsweep.workloads.diagnostics.roles.scores import ROLE_SHARE
from attnsweep.workloads.engine.contract import BYTES_AT_ONCE, Batch, Certificate, HeadScores, Lanes, Workload
from attnsweep.workloads.engine.functional import over_lanes, parted
from attnsweep.workloads.engine.layout import in_type, prefixed, under
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.schedule import probe_steps
from attnsweep.workloads.engine.vectorization import told_to_users
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.problem.data import INPUTS, Draw, check_rows, checked, n_trained_on, shuffled, table_of
from attnsweep.workloads.problem.functions import Call, Loss, output_of
from attnsweep.workloads.vocabulary import NO_ROLE

_PARAMETER, _TRAINED_ON = "parameter", "train"
"""The prefixes, in a batch, of parameters that differ between lanes, and of a table's trained rows in held-out data."""
_EVAL_DRAWN, _EVAL_ROWS = 512, 2**14
"""The default `eval_batch_size`: of data that are drawn, and of a table (if it has so many rows)."""


class Problem(Workload[Any]):
    """Subclass what `attnsweep.problem` returns for what functions cannot express; it sets the attributes."""

    model: ClassVar[Call]
    data: ClassVar[Call]
    training_loss: ClassVar[Loss]
    metrics: ClassVar[Mapping[str, Call]]
    own_levels: ClassVar[Mapping[str, Call]]
    heads: ClassVar[Mapping[str, Call]]
    weights_of_heads: ClassVar[Call]
    own_initial: ClassVar[Call | None]
    certificates: ClassVar[Mapping[str, Call]]
    solved_below: ClassVar[float | None]
    eval_batch_size: ClassVar[int | None]
    eval_step: ClassVar[int | None]
    own_probe_steps: ClassVar[int | Sequence[int] | Call | None]

    def __init__(self) -> None:
        self._bytes: dict[Any, int] = {}  # of one step's data of one training, by static parameters

    def build(self, parameters: Any) -> nn.Module:
        """The user's module, with the static parameters as its attribute `of_problem`."""
        module: Any = self.model(parameters.values())
        forward = getattr(type(module), "forward", None)  # a ScriptModule's class has none
        if not isinstance(module, nn.Module) or (forward is nn.Module.forward and "forward" not in vars(module)):
            expected, fix = "a torch.nn.Module with the method `forward`", "let the function `model` return one"
            raise SpecError("model", given=type(module).__name__, expected=expected, fix=fix)
        module.of_problem = _static(parameters)
        return module

    def initial(self, module: nn.Module, lanes: Lanes[Any]) -> State:
        state = super().initial(module, lanes)
        call = self.own_initial
        if call is None:
            return state

        def of_one(module: nn.Module, batch: Batch) -> dict[str, Tensor]:
            drawn: dict[str, Tensor] = call(self._known(module, batch) | {"draw": Draw(batch["seed"], "initial", 0)})
            return drawn

        start = {**(lanes.built or {}), **state}
        batch = prefixed(_PARAMETER, _differing(lanes, [call])) | {"seed": lanes.streams.seeds}
        own = over_lanes(module, of_one)(*parted(module, start), batch)
        for name, value in own.items():
            if name not in start or value.shape != start[name].shape:
                given = f"{name} of the shape {tuple(value.shape[1:])}"
                expected = f"a tensor of the module in its shape: {', '.join(start)}"
                fix = "return the tensors by their names in module.state_dict()"
                raise SpecError("initial", given=given, expected=expected, fix=fix)
        return state | {name: value.to(start[name].dtype) for name, value in own.items()}

    def batch(self, lanes: Lanes[Any], step: int) -> Batch:
        return self.batches(lanes, range(step, step + 1))[0]

    def batches(self, lanes: Lanes[Any], steps: range) -> list[Batch]:
        """Those of the first steps together, as many as `BYTES_AT_ONCE` allows; one by one if `data` reads the step."""
        key, n_lanes = lanes.shared.static_key(), len(lanes.trainings)
        at_once = BYTES_AT_ONCE // (self._bytes.get(key, BYTES_AT_ONCE) * n_lanes)
        steps = steps[: 1 if "step" in self.data.names else max(at_once, 1)]
        own = self._lane_parameters(lanes)
        drawn = self._drawn(lanes, "train", steps) if "draw" in self.data.names else self._rows_of_steps(lanes, steps)
        self._bytes[key] = sum(value.nbytes for value in drawn[0].values()) // n_lanes + 1
        return [own | data for data in drawn]

    def eval_batch(self, lanes: Lanes[Any]) -> Batch:
        own = self._lane_parameters(lanes)
        if "draw" in self.data.names:
            return own | self._drawn(lanes, "eval", range(1))[0]
        n_rows, n_trained = self._n_rows(lanes)
        max_rows = _EVAL_ROWS if self.eval_batch_size is None else self.eval_batch_size
        trained_on = torch.arange(min(n_trained, max_rows), device=lanes.device)
        held_out = torch.arange(n_trained, min(n_rows, n_trained + max_rows), device=lanes.device)
        if self.training_loss.metric_names:
            own |= prefixed(_TRAINED_ON, self._rows(lanes, trained_on.expand(len(lanes.trainings), -1)))
        places = held_out if len(held_out) else trained_on
        return own | self._rows(lanes, places.expand(len(lanes.trainings), -1))

    def probe_steps(self, parameters: Any) -> tuple[int, ...] | None:
        n_steps, own = parameters.n_steps, self.own_probe_steps
        if own is None:
            return None
        if isinstance(own, int):
            return probe_steps(n_steps, own)
        chosen = own(_static(parameters)) if isinstance(own, Call) else own
        return tuple(sorted({0, n_steps, *(step for step in chosen if 0 <= step <= n_steps)}))

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return self.training_loss.of(self._values(module, batch))

    def evaluate(self, module: nn.Module, batch: Batch) -> Batch:
        output = output_of(module(*_inputs_in(batch)))
        return {"output": output, "eval_loss": self.training_loss.of(self._known(module, batch | {"output": output}))}

    def measure(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Metrics on held-out data; for a table those of the loss on the training rows too, as `train_...`."""
        held_out = self._known(module, batch)
        metrics = self.training_loss.metrics(held_out)
        if trained_on := under(_TRAINED_ON, batch):
            values = self._values(module, batch | trained_on)
            metrics |= {f"train_{name}": value for name, value in self.training_loss.metrics(values).items()}
        return metrics | {name: call(held_out) for name, call in self.metrics.items()}

    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        held_out = self._known(module, batch | {"output": output_of(module(*_inputs_in(batch)))})
        blind = held_out | {"output": torch.zeros_like(held_out["output"])}
        zero = self.training_loss.of(blind)
        levels = {"zero": zero, **self.training_loss.levels(blind)}
        levels |= {name: zero.new_zeros(()) + call(held_out) for name, call in self.own_levels.items()}
        return levels | {"solved": torch.full_like(zero, torch.nan if self.solved_below is None else self.solved_below)}

    def score_heads(self, lanes: Lanes[Any], state: State) -> HeadScores | None:
        """A head has the role of its highest score, if that is at least `ROLE_SHARE`."""
        if not self.heads:
            return None
        score_by_role = self._on_held_out(lanes, state, self.heads)
        scores = {role: score_LNH.double().cpu().numpy() for role, score_LNH in score_by_role.items()}
        for role, score_LNH in scores.items():
            if score_LNH.ndim != 3 or score_LNH.shape != next(iter(scores.values())).shape:
                given, fix = f"a score of shape {score_LNH.shape[1:]}", "average it over examples and queries"
                expected = "one number per (layer, head), and the same shape for all scores"
                raise SpecError(f"heads, {role}", given=given, expected=expected, fix=fix)
        highest = np.maximum.reduce([*scores.values()])
        is_role = [(score >= ROLE_SHARE) & (score == highest) for score in scores.values()]
        return HeadScores(scores=scores, role=np.select(is_role, [*scores], NO_ROLE))

    def attention(self, module: nn.Module, batch: Batch) -> Tensor:
        """The attention weights of one training, (layer, example, head, query, key)."""
        weights: Tensor = self.weights_of_heads(self._known(module, batch | self.evaluate(module, batch)))
        return weights

    def certify(
        self, lanes: Lanes[Any], state: State, outcome: NDArray[np.str_], detail: NDArray[np.str_]
    ) -> list[Certificate | None]:
        del detail
        tests = {label: call for label, call in self.certificates.items() if label in outcome}
        agrees = self._on_held_out(lanes, state, tests) if tests else {}
        return [
            Certificate(tests[label].name, bool(agrees[label][lane])) if label in tests else None
            for lane, label in enumerate(outcome.tolist())
        ]

    def _on_held_out(self, lanes: Lanes[Any], state: State, calls: Mapping[str, Call]) -> dict[str, Tensor]:
        """The user's functions on each training's held-out data, (L, ...) by name."""
        template = self.build(lanes.shared).to(lanes.device, lanes.dtype).eval()
        read = {name for call in calls.values() for name in call.names}
        read |= {*self.weights_of_heads.names} if "weights" in read else set()

        def computed(module: nn.Module, batch: Batch) -> dict[str, Tensor]:
            values = self._known(module, batch)
            if "output" in read:
                values["output"] = output_of(module(*_inputs_in(batch)))
            if "weights" in read:
                values["weights"] = self.weights_of_heads(values)
            return {name: torch.as_tensor(call(values)) for name, call in calls.items()}

        with torch.no_grad():
            result: dict[str, Tensor] = over_lanes(template, computed)(*parted(template, state), self.eval_batch(lanes))
        return result

    def _values(self, module: nn.Module, batch: Batch) -> dict[str, Any]:
        """What the user's functions may take, by name; the output only if the training loss needs it."""
        values = self._known(module, batch)
        return values | ({"output": output_of(module(*_inputs_in(batch)))} if self.training_loss.needs_output else {})

    def _known(self, module: Any, batch: Batch) -> dict[str, Any]:
        inputs = _inputs_in(batch)
        data = {name: value for name, value in batch.items() if "/" not in name}
        given = {"inputs": inputs[0] if len(inputs) == 1 else inputs, "module": module}
        return {**module.of_problem, **under(_PARAMETER, batch), **data, **given}

    def _drawn(self, lanes: Lanes[Any], use: str, steps: range) -> list[Batch]:
        values = _static(lanes.shared) | {"step": steps[0]}
        if use == "eval":
            # The draws are those of step 0 whatever step is judged, so that more steps change none of them.
            drawn = _EVAL_DRAWN if self.eval_batch_size is None else self.eval_batch_size
            values |= {"batch_size": drawn, "step": self._judged_step(lanes.shared)}

        streams, n_lanes = lanes.streams, len(lanes.trainings)
        # One entry for each step and training: the seed of its draw, the step, and the seed of what is `fixed`.
        keys = [
            torch.cat([streams.seeds_at(f"problem/{use}", step) for step in steps]),
            torch.arange(steps[0], steps[-1] + 1, device=lanes.device).repeat_interleave(n_lanes),
            streams.seeds.repeat(len(steps)),
        ]
        differing = {name: value.repeat(len(steps)) for name, value in _differing(lanes, [self.data]).items()}
        batch = _drawn_by(self.data, values, lambda seed, at, own: Draw(seed, use, at, own), keys, differing)
        return _by_step(in_type(batch, lanes.dtype), steps)

    def _judged_step(self, parameters: Any) -> int:
        if self.eval_step is not None:
            return self.eval_step
        return 0 if parameters.optimizer == "lbfgs" else int(parameters.n_steps) - 1  # lbfgs keeps its first batch

    def _rows_of_steps(self, lanes: Lanes[Any], steps: range) -> list[Batch]:
        """Without `replacement` an epoch is a random order of the trained rows, without an incomplete last batch."""
        n_drawn, streams = lanes.shared.batch_size, lanes.streams
        _, n_trained = self._n_rows(lanes)
        within = torch.arange(n_trained, device=lanes.device).expand(len(lanes.trainings), -1)
        if n_drawn is not None and lanes.shared.replacement:
            places = [streams.integers("problem/batch", (n_drawn,), n_trained, step) for step in steps]
        elif n_drawn is None or n_drawn >= n_trained:
            return [self._rows(lanes, within)] * len(steps)
        else:
            by_epoch: dict[int, list[int]] = {}
            for step in steps:
                by_epoch.setdefault(step // (n_trained // n_drawn), []).append(step)
            places = []
            for epoch, own_steps in by_epoch.items():
                first = epoch * (n_trained // n_drawn)
                wanted = within[:, (own_steps[0] - first) * n_drawn : (own_steps[-1] + 1 - first) * n_drawn]
                places += shuffled(streams, "problem/batch", wanted, n_trained, epoch, first).split(n_drawn, dim=1)
        rows = self._rows(lanes, torch.cat(places, dim=1))
        by_step = {name: value.unflatten(1, (len(steps), -1)).transpose(0, 1) for name, value in rows.items()}
        return _by_step({name: value.flatten(0, 1) for name, value in by_step.items()}, steps)

    def _n_rows(self, lanes: Lanes[Any]) -> tuple[int, int]:
        """Of the table, and of those trained on."""
        n_rows = next(iter(self._table(lanes).values())).shape[1]
        return n_rows, n_trained_on(lanes.shared.train_fraction, n_rows)

    def _rows(self, lanes: Lanes[Any], place_LP: Tensor) -> Batch:
        """The rows at these places of each training's own order, of which the first ones are trained on."""
        row_LP = shuffled(lanes.streams, "problem/split", place_LP, self._n_rows(lanes)[0])
        lane_L1 = torch.arange(len(place_LP) if "fixed" in self.data.names else 1, device=lanes.device).unsqueeze(1)
        return in_type({name: column[lane_L1, row_LP] for name, column in self._table(lanes).items()}, lanes.dtype)

    def _table(self, lanes: Lanes[Any]) -> Batch:
        """Columns by name: (1, row, ...) if all trainings have the same table, else (L, row, ...)."""
        if "fixed" not in self.data.names:
            values = _static(lanes.shared)
            return table_of(self.data, tuple((name, values[name]) for name in self.data.names), lanes.device)
        return _own_tables(self.data, lanes)

    def _lane_parameters(self, lanes: Lanes[Any]) -> Batch:
        calls = [*self.metrics.values(), *self.own_levels.values(), *self.heads.values(), *self.certificates.values()]
        calls += [self.weights_of_heads, *([self.training_loss.call] if self.training_loss.call else [])]
        return prefixed(_PARAMETER, _differing(lanes, calls))


def _static(parameters: Any) -> Any:
    return {name: getattr(parameters, name) for name, declared in parameters.declared().items() if declared.static}


def _differing(lanes: Lanes[Any], calls: Sequence[Call]) -> dict[str, Tensor]:
    """The parameters of these functions that may differ between lanes, (L,) by name."""
    declared = lanes.shared.declared()
    names = {name for call in calls for name in call.names if name in declared and not declared[name].static}
    return {name: lanes.tensor(name) for name in sorted(names)}


def _drawn_by(
    data: Call, values: Mapping[str, Any], draws: Callable[..., Draw], keys: Sequence[Tensor], differing: State
) -> Batch:
    """Calls the user's function once for each entry of `keys`, all in one `vmap`: (len(keys[0]), ...) by name."""

    def data_of_one(keys: Sequence[Tensor], differing: State) -> Batch:
        draw = draws(*keys)
        return checked(data({**values, **differing, "draw": draw, "fixed": draw}))

    # A single one is drawn twice, as losses are: alone, products would take other kernels, which round differently.
    width = max(len(keys[0]), 2)
    filled = [key.expand(width, *key.shape[1:]) if len(key) == 1 else key for key in keys]
    differing = {
        name: value.expand(width, *value.shape[1:]) if len(value) == 1 else value for name, value in differing.items()
    }
    with told_to_users():
        batch: Batch = vmap(data_of_one)(filled, differing)
    return {name: value[: len(keys[0])] for name, value in batch.items()}


@lru_cache(maxsize=2)
def _own_tables(data: Call, lanes: Lanes[Any]) -> Batch:
    seeds = lanes.streams.seeds
    table = _drawn_by(
        data, _static(lanes.shared), lambda seed: Draw(seed, "fixed", 0), [seeds], _differing(lanes, [data])
    )
    check_rows(table, first_axis=1)
    return in_type(table, lanes.dtype)


def _by_step(batch: Batch, steps: range) -> list[Batch]:
    by_step = {name: value.unflatten(0, (len(steps), -1)).unbind() for name, value in batch.items()}
    return [dict(zip(by_step, values, strict=True)) for values in zip(*by_step.values(), strict=True)]


def _inputs_in(batch: Batch) -> tuple[Tensor, ...]:
    return tuple(value for name, value in batch.items() if name.startswith(INPUTS))
