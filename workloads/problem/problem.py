"""The base class of workloads made by `attnsweep.problem`. Subclass it for what the user's functions cannot express."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import vmap

from attnsweep.workloads.diagnostics.roles.scores import ROLE_SHARE
from attnsweep.workloads.diagnostics.verdicts import VerdictTable
from attnsweep.workloads.engine.contract import Batch, HeadScores, Lanes, Workload
from attnsweep.workloads.engine.functional import over_lanes, parted
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.schedule import probe_steps
from attnsweep.workloads.engine.vectorization import refusal_of
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.problem.data import (
    TABLE,
    Data,
    Draw,
    checked,
    columns_in,
    n_trained_on,
    order_of_rows,
    rows_in,
    table_of,
)
from attnsweep.workloads.problem.functions import Call, Loss, output_of
from attnsweep.workloads.vocabulary import NO_ROLE

_PARAMETER = "parameter/"
"""The prefix, in a batch, of the names of parameters that may differ between trainings of one program."""


class Problem(Workload[Any]):
    """The base of the workload classes that `attnsweep.problem` makes from a user's functions. `attnsweep.problem` sets
    the attributes."""

    terms = MappingProxyType(
        {
            "`batch` from lanes.streams": "`data` with its argument `draw`",
            "`batch`, from lanes.streams": "`data`, with its argument `draw`",
            "pass it in the batch": "return it among the inputs",
            "`batch`": "`data`",
            "`build`": "`model`",
            "`measure`": "`metrics`",
            "`judge`": "`solved` and `outcomes`",
        }
    )
    model: ClassVar[Call]
    data: ClassVar[Call]
    training_loss: ClassVar[Loss]
    metrics: ClassVar[Mapping[str, Call]]
    own_levels: ClassVar[Mapping[str, Call]]
    heads: ClassVar[Mapping[str, Call]]
    weights_of_heads: ClassVar[Call]
    solved_below: ClassVar[float | None]
    table_of_verdicts: ClassVar[VerdictTable]
    eval_batch_size: ClassVar[int]
    eval_step: ClassVar[int | None]
    probe_every: ClassVar[int | None]
    probe_at: ClassVar[Sequence[int]]

    def build(self, parameters: Any) -> nn.Module:
        """Builds the user's module for one training. The module gets the attribute `of_problem` with the static
        parameters; if the workload has a table (fixed data set), the module's buffers hold its tensors."""
        values = parameters.values()
        module = self.model(values)
        if not isinstance(module, nn.Module):
            raise SpecError(
                "model",
                given=type(module).__name__,
                expected="a function that returns a torch.nn.Module",
                fix="let the function `model` return a torch.nn.Module",
            )
        if type(module).forward is nn.Module.forward and "forward" not in vars(module):
            raise SpecError(
                "model",
                given=f"a {type(module).__name__} without the method `forward`",
                expected="a module that computes the output from the inputs",
                fix="define `forward` in its class",
            )
        module.of_problem = _static(parameters)
        if self._has_table:
            inputs, target = self._table(values)
            for place, column in enumerate((*inputs, target)):
                # Columns are copied, because all modules get the same cached table and might write to their buffers.
                module.register_buffer(f"{TABLE}{place}", column.clone())
        return module

    def initial(self, module: nn.Module, lanes: Lanes[Any]) -> State:
        """Draws the initial parameters. For a table (fixed data set) it also draws a random order of its rows; the
        first rows are for training."""
        state = super().initial(module, lanes)
        if self._has_table:
            columns = columns_in(module)
            order = torch.argsort(lanes.streams.uniform("problem/split", (len(columns[0]),)), dim=-1)
            state |= {f"{TABLE}{place}": column[order] for place, column in enumerate(columns)}
        return state

    def batch(self, lanes: Lanes[Any], step: int) -> Batch:
        """Draws the data of a step. For a table (fixed data set) it draws the indices of training rows."""
        batch = self._lane_parameters(lanes)
        if not self._has_table:
            return batch | self._drawn(lanes, "train", step)
        values = _static(lanes.shared)
        n_drawn = values["batch_size"]
        n_rows = n_trained_on(values["train_fraction"], len(self._table(values)[1]))
        if n_drawn is not None and values["replacement"]:
            return batch | {"row": lanes.streams.integers("problem/batch", (n_drawn,), n_rows, step)}
        if n_drawn is None or n_drawn >= n_rows:
            return batch
        epoch, place = divmod(step, n_rows // n_drawn)
        order = order_of_rows(lanes.streams, n_rows, epoch, used_from=step - place)
        return batch | {"row": order[:, place * n_drawn : (place + 1) * n_drawn]}

    def eval_batch(self, lanes: Lanes[Any]) -> Batch:
        return self._lane_parameters(lanes) | ({} if self._has_table else self._drawn(lanes, "eval", 0))

    def probe_steps(self, parameters: Any) -> tuple[int, ...] | None:
        n_steps, every = parameters.n_steps, self.probe_every
        if every is None and not self.probe_at:
            return None
        regular = (0, n_steps) if every is None else probe_steps(n_steps, every)
        return tuple(sorted({*regular, *(step for step in self.probe_at if step <= n_steps)}))

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return self.training_loss.of(self._values(module, batch, self._trained_on(module, batch)))

    def answers(self, module: nn.Module, batch: Batch) -> Batch:
        inputs, target = self._held_out(module, batch)
        return {**_named(inputs), "target": target, "output": output_of(module(*inputs))}

    def eval_loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return self.training_loss.of(self._answered(module, batch))

    def measure(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Computes metrics on held-out data. For a table (fixed data set) it computes them on the training rows too,
        with the prefix `train_` in their names."""
        held_out = self._answered(module, batch)
        metrics = self.training_loss.metrics(held_out)
        if self._has_table and metrics:
            trained_on = self._values(module, batch, rows_in(module, "trained on"))
            metrics |= {f"train_{name}": value for name, value in self.training_loss.metrics(trained_on).items()}
        return metrics | {name: call(held_out) for name, call in self.metrics.items()}

    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Computes the losses of simple predictors, such as the constant output 0, on held-out data."""
        held_out = self._answered(module, batch | self.answers(module, batch))
        blind = held_out | {"output": torch.zeros_like(held_out["output"])}
        zero = self.training_loss.of(blind)
        levels = {"zero": zero, **self.training_loss.levels(blind)}
        levels |= {name: zero.new_zeros(()) + call(held_out) for name, call in self.own_levels.items()}
        return levels | {"solved": torch.full_like(zero, torch.nan if self.solved_below is None else self.solved_below)}

    def verdicts(self, parameters: Any) -> VerdictTable:
        del parameters
        return self.table_of_verdicts

    def score_heads(self, lanes: Lanes[Any], state: State) -> HeadScores | None:
        """Computes the scores of attention heads that the user defined, one for each role. A head gets the role of its
        highest score if this score is at least 0.5, else no role."""
        if not self.heads:
            return None
        template = self.build(lanes.shared).to(lanes.device, lanes.dtype).eval()
        batch = self.eval_batch(lanes)

        def scored(module: nn.Module, batch: Batch) -> dict[str, Tensor]:
            inputs, target = self._held_out(module, batch)
            values = self._known(module, batch) | {"inputs": _as_given(inputs), "target": target}
            if any("output" in call.names for call in (self.weights_of_heads, *self.heads.values())):
                values["output"] = output_of(module(*inputs))
            values["weights"] = self.weights_of_heads(values)
            return {role: call(values) for role, call in self.heads.items()}

        with torch.no_grad():
            score_by_role = over_lanes(template, scored)(*parted(template, state), batch)
        scores = {role: score_LNH.double().cpu().numpy() for role, score_LNH in score_by_role.items()}
        for role, score_LNH in scores.items():
            if score_LNH.ndim != 3 or score_LNH.shape != next(iter(scores.values())).shape:
                raise SpecError(
                    f"heads, {role}",
                    given=f"a score of shape {score_LNH.shape[1:]}",
                    expected="one number per (layer, head), and the same shape for all scores",
                    fix="average each score over examples and queries: the attention weights are (layer, example,"
                    " head, query, key)",
                )
        highest = np.maximum.reduce([*scores.values()])
        role = np.select([(score >= ROLE_SHARE) & (score == highest) for score in scores.values()], [*scores], NO_ROLE)
        return HeadScores(scores=scores, role=role)

    @property
    def _has_table(self) -> bool:
        return "draw" not in self.data.names

    def _table(self, values: Mapping[str, Any]) -> Data:
        return table_of(self.data, tuple((name, values[name]) for name in self.data.names))

    def _trained_on(self, module: nn.Module, batch: Batch) -> Data:
        if not self._has_table:
            return _inputs_in(batch), batch["target"]
        inputs, target = rows_in(module, "trained on")
        if "row" not in batch:
            return inputs, target
        return tuple(column[batch["row"]] for column in inputs), target[batch["row"]]

    def _held_out(self, module: nn.Module, batch: Batch) -> Data:
        return rows_in(module, "held out") if self._has_table else (_inputs_in(batch), batch["target"])

    def _values(self, module: nn.Module, batch: Batch, data: Data) -> dict[str, Any]:
        """What the user's functions may take, by name; the output only if the training loss needs it."""
        inputs, target = data
        values = self._known(module, batch) | {"inputs": _as_given(inputs), "target": target}
        return values | ({"output": output_of(module(*inputs))} if self.training_loss.needs_output else {})

    def _answered(self, module: nn.Module, batch: Batch) -> dict[str, Any]:
        """The same for a held-out batch that already has the model's output."""
        data = {"inputs": _as_given(_inputs_in(batch)), "target": batch["target"], "output": batch["output"]}
        return self._known(module, batch) | data

    def _known(self, module: Any, batch: Batch) -> dict[str, Any]:
        lane_values = {
            name.removeprefix(_PARAMETER): value for name, value in batch.items() if name.startswith(_PARAMETER)
        }
        return {**module.of_problem, **lane_values, "module": module}

    def _drawn(self, lanes: Lanes[Any], use: str, step: int) -> Batch:
        values = _static(lanes.shared) | {"step": step}
        if use == "eval":
            # The draws are those of step 0 whatever step is judged, so that more steps change none of them.
            values |= {"batch_size": self.eval_batch_size, "step": self._judged_step(lanes.shared)}

        def data_of_one_training(seed: Tensor, own_seed: Tensor, differing: dict[str, Tensor]) -> Batch:
            draw = Draw(seed, use, step, own_seed)
            inputs, target = checked(self.data({**values, **differing, "draw": draw}))
            return {**_named(inputs), "target": target}

        streams = lanes.streams
        seeds = streams.seeds_at(f"problem/{use}", step), streams.seeds
        try:
            batch: Batch = vmap(data_of_one_training)(*seeds, _differing(lanes, (self.data,)))
        except (RuntimeError, ValueError) as error:
            raise refusal_of(error) or error from error
        return {name: _in_type(value, lanes.dtype) for name, value in batch.items()}

    def _judged_step(self, parameters: Any) -> int:
        if self.eval_step is not None:
            return self.eval_step
        return 0 if parameters.optimizer == "lbfgs" else int(parameters.n_steps) - 1  # lbfgs keeps its first batch

    def _lane_parameters(self, lanes: Lanes[Any]) -> Batch:
        calls = [*self.metrics.values(), *self.own_levels.values(), *self.heads.values(), self.weights_of_heads]
        calls += [self.training_loss.call] if self.training_loss.call else []
        return {f"{_PARAMETER}{name}": value for name, value in _differing(lanes, calls).items()}


def _static(parameters: Any) -> Any:
    """Returns by name the values of the static parameters, which all trainings of one program share."""
    return {name: getattr(parameters, name) for name, declared in parameters.declared().items() if declared.static}


def _differing(lanes: Lanes[Any], calls: Any) -> dict[str, Tensor]:
    declared = lanes.shared.declared()
    names = {name for call in calls for name in call.names if name in declared and not declared[name].static}
    return {name: lanes.tensor(name) for name in sorted(names)}


def _named(inputs: tuple[Tensor, ...]) -> Batch:
    return {f"inputs/{place}": value for place, value in enumerate(inputs)}


def _inputs_in(batch: Batch) -> tuple[Tensor, ...]:
    return tuple(value for name, value in batch.items() if name.startswith("inputs/"))


def _as_given(inputs: tuple[Tensor, ...]) -> Any:
    """Converts inputs back to the form that the user's data function returned: one tensor, or a tuple of several."""
    return inputs[0] if len(inputs) == 1 else inputs


def _in_type(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value
