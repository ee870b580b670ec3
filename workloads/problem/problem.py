"""A training problem put together from functions. It is a `Workload`: derive from it what functions cannot say."""

import random
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import vmap

from attnsweep.workloads.attention_weights import attention_weights
from attnsweep.workloads.conditions import holds, terms_of
from attnsweep.workloads.declaration import parameter
from attnsweep.workloads.diagnostics.outcomes import DIVERGED_FACTOR, has_diverged
from attnsweep.workloads.diagnostics.roles.token_heads import ROLE_SHARE
from attnsweep.workloads.diagnostics.verdicts import AtLevel, Rule, VerdictTable, below_solved
from attnsweep.workloads.engine.contract import Batch, Condition, HeadScores, Lanes, Workload
from attnsweep.workloads.engine.functional import over_lanes, parted
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.schedule import probe_steps
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.problem.arguments import Call, parameters_class, read_call
from attnsweep.workloads.problem.draw import Draw
from attnsweep.workloads.problem.losses import Loss, output_of, read_loss
from attnsweep.workloads.vocabulary import NO_ROLE, Outcome

When: TypeAlias = str | Condition
"""A condition as a text, such as `accuracy >= 0.99`, or as a function of parameters and evidence."""
Data: TypeAlias = tuple[tuple[Tensor, ...], Tensor]
"""Inputs and target, the examples along the first axis of each."""

_DRAWN = frozenset({"draw", "step"})
_SEEN = frozenset({"module", "inputs", "target", "output", "weights"})
_TABLE = "table_"
"""The prefix of the buffers with a table's columns, their rows in the order of the training's split: those trained on
come first. They are buffers, because what a loss reads from elsewhere cannot be compiled."""
_PARAMETER = "parameter/"
"""The prefix, in a batch, of a parameter that may differ between lanes."""
_DEFAULTS: Mapping[str, object] = MappingProxyType({"init_sigma": None, "dtype": "float32"})


class Problem(Workload[Any]):
    """A workload put together from functions: see `problem`."""

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
    probe_every: ClassVar[int | None]

    def build(self, parameters: Any) -> nn.Module:
        """The user's module, which keeps its parameters; with a table of data, the order of its rows is a buffer."""
        values = parameters.values()
        module = self.model(values)
        if not isinstance(module, nn.Module):
            raise SpecError("model", given=type(module).__name__, expected="a torch.nn.Module", fix="return the module")
        module.of_problem = parameters
        if self._has_table:
            inputs, target = self._table(values)
            for place, column in enumerate((*inputs, target)):
                # A copy: the table is made once, and a module's buffers may be written to.
                module.register_buffer(f"{_TABLE}{place}", column.clone())
        return module

    def initial(self, module: nn.Module, lanes: Lanes[Any]) -> State:
        """Parameters as the module draws them, or by `init_sigma`; a table in the order of each training's split."""
        state = super().initial(module, lanes)
        if self._has_table:
            columns = _columns_in(module)
            order = torch.argsort(lanes.streams.uniform("problem/split", (len(columns[0]),)), dim=-1)
            state |= {f"{_TABLE}{place}": column[order] for place, column in enumerate(columns)}
        return state

    def batch(self, lanes: Lanes[Any], step: int) -> Batch:
        """The data of a step: drawn, or the places of a table's rows among those trained on."""
        batch = self._lane_parameters(lanes)
        if not self._has_table:
            return batch | self._drawn(lanes, "train", step)
        values = _static(lanes.shared)
        if values["batch_size"] is None:
            return batch
        n_rows = _n_trained_on(values["train_fraction"], len(self._table(values)[1]))
        return batch | {"row": lanes.streams.integers("problem/batch", (values["batch_size"],), n_rows, step)}

    def eval_batch(self, lanes: Lanes[Any]) -> Batch:
        """The data of the probes, where they are drawn."""
        return self._lane_parameters(lanes) | ({} if self._has_table else self._drawn(lanes, "eval", 0))

    def probe_steps(self, parameters: Any) -> tuple[int, ...]:
        """Every so many steps, or as in every workload."""
        if self.probe_every is None:
            return probe_steps(parameters.n_steps)
        return (*range(0, parameters.n_steps, self.probe_every), parameters.n_steps)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """The loss on the data of a step."""
        return self.training_loss.of(self._values(module, batch, self._trained_on(module, batch)))

    def answers(self, module: nn.Module, batch: Batch) -> Batch:
        """The held-out data, and the module's output on them."""
        inputs, target = self._held_out(module, batch)
        return {**_named(inputs), "target": target, "output": output_of(module(*inputs))}

    def eval_loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """The loss on held-out data."""
        return self.training_loss.of(self._answered(module, batch))

    def measure(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The metrics of the loss and the user's own on held-out data; those of the loss on rows trained on, too."""
        held_out = self._answered(module, batch)
        measured = self.training_loss.metrics(held_out)
        if self._has_table and measured:
            known = self._values(module, batch, _rows_in(module, "trained on"))
            measured |= {f"train_{name}": value for name, value in self.training_loss.metrics(known).items()}
        return measured | {name: call(held_out) for name, call in self.metrics.items()}

    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The loss of predictors that know little, on the held-out data."""
        held_out = self._answered(module, batch | self.answers(module, batch))
        blind = held_out | {"output": torch.zeros_like(held_out["output"])}
        zero = self.training_loss.of(blind)
        levels = {"zero": zero, **self.training_loss.levels(blind)}
        levels |= {name: zero.new_zeros(()) + call(held_out) for name, call in self.own_levels.items()}
        return levels | {"solved": torch.full_like(zero, torch.nan if self.solved_below is None else self.solved_below)}

    def verdicts(self, parameters: Any) -> VerdictTable:
        """The table by which trainings are judged."""
        del parameters
        return self.table_of_verdicts

    def score_heads(self, lanes: Lanes[Any], state: State) -> HeadScores | None:
        """The user's scores of attention heads; the role of a head is that of its highest one, if it is high."""
        if not self.heads:
            return None
        template = self.build(lanes.shared).to(lanes.device, lanes.dtype)
        batch = self.eval_batch(lanes)

        def scored(module: nn.Module, batch: Batch) -> dict[str, Tensor]:
            data = self._held_out(module, batch)
            seen = self._known(module, batch) | {"inputs": _as_given(data[0]), "target": data[1]}
            seen["weights"] = self.weights_of_heads(seen)
            return {role: call(seen) for role, call in self.heads.items()}

        with torch.no_grad():
            found = over_lanes(template, scored)(*parted(template, state), batch)
        scores = {role: score_LNH.double().cpu().numpy() for role, score_LNH in found.items()}
        for role, score_LNH in scores.items():
            if score_LNH.ndim != 3 or score_LNH.shape != next(iter(scores.values())).shape:
                raise SpecError(
                    f"heads, {role}",
                    given=f"a score of shape {score_LNH.shape[1:]}",
                    expected="one number for each (layer, head), of the same shape in all scores",
                    fix="take means over examples and queries: weights are (layer, example, head, query, key)",
                )
        highest = np.maximum.reduce([*scores.values()])
        role = np.select([(score >= ROLE_SHARE) & (score == highest) for score in scores.values()], [*scores], NO_ROLE)
        return HeadScores(scores=scores, role=role)

    @property
    def _has_table(self) -> bool:
        return "draw" not in self.data.names

    def _table(self, values: Mapping[str, Any]) -> Data:
        return _table_of(self.data, tuple((name, values[name]) for name in self.data.names))

    def _trained_on(self, module: nn.Module, batch: Batch) -> Data:
        if not self._has_table:
            return _inputs_in(batch), batch["target"]
        inputs, target = _rows_in(module, "trained on")
        if "row" not in batch:
            return inputs, target
        return tuple(each[batch["row"]] for each in inputs), target[batch["row"]]

    def _held_out(self, module: nn.Module, batch: Batch) -> Data:
        return _rows_in(module, "held out") if self._has_table else (_inputs_in(batch), batch["target"])

    def _values(self, module: nn.Module, batch: Batch, data: Data) -> dict[str, Any]:
        """What functions of the user's may name, on some data."""
        inputs, target = data
        values = self._known(module, batch) | {"inputs": _as_given(inputs), "target": target}
        return values | ({"output": output_of(module(*inputs))} if self.training_loss.needs_output else {})

    def _answered(self, module: nn.Module, batch: Batch) -> dict[str, Any]:
        """The same on the held-out data, whose outputs the batch has."""
        seen = {"inputs": _as_given(_inputs_in(batch)), "target": batch["target"], "output": batch["output"]}
        return self._known(module, batch) | seen

    def _known(self, module: nn.Module, batch: Batch) -> dict[str, Any]:
        of_lane = {name.removeprefix(_PARAMETER): each for name, each in batch.items() if name.startswith(_PARAMETER)}
        return {**_static(module.of_problem), **of_lane, "module": module}

    def _drawn(self, lanes: Lanes[Any], use: str, step: int) -> Batch:
        """Inputs and target of a step, (L, ...) by name."""
        values = _static(lanes.shared)
        if use == "eval" and "batch_size" in self.data.names:
            values["batch_size"] = self.eval_batch_size

        def of_one_training(seed: Tensor, own: dict[str, Tensor]) -> Batch:
            inputs, target = _parts(self.data({**values, **own, "draw": Draw(seed, use, step), "step": step}))
            return {**_named(inputs), "target": target}

        batch: Batch = vmap(of_one_training)(lanes.streams.seeds, _differing(lanes, (self.data,)))
        return {name: _in_type(value, lanes.dtype) for name, value in batch.items()}

    def _lane_parameters(self, lanes: Lanes[Any]) -> Batch:
        calls = [*self.metrics.values(), *self.own_levels.values(), *self.heads.values()]
        calls += [self.training_loss.call] if self.training_loss.call else []
        return {f"{_PARAMETER}{name}": value for name, value in _differing(lanes, calls).items()}


def _static(parameters: Any) -> dict[str, Any]:
    """The values that all trainings of a program share, by name."""
    return {name: getattr(parameters, name) for name, each in parameters.declared().items() if each.static}


def _differing(lanes: Lanes[Any], calls: Any) -> dict[str, Tensor]:
    """(L,) by name: the parameters that these functions name and that may differ between trainings of a program."""
    declared = lanes.shared.declared()
    names = {name for call in calls for name in call.names if name in declared and not declared[name].static}
    return {name: lanes.tensor(name) for name in sorted(names)}


def _parts(data: Any) -> Data:
    """What a function of data returned, checked."""
    if not isinstance(data, tuple) or len(data) != 2 or not isinstance(data[1], Tensor):
        raise SpecError(
            "data", given=type(data).__name__, expected="a pair (inputs, target) of tensors", fix="return both"
        )
    inputs = data[0] if isinstance(data[0], tuple) else (data[0],)
    if not all(isinstance(each, Tensor) for each in inputs):
        raise SpecError(
            "data", given=data[0], expected="inputs that are a tensor, or a tuple of tensors", fix="make tensors of it"
        )
    return inputs, data[1]


def _columns_in(module: nn.Module) -> list[Tensor]:
    """The inputs and the target of the module's table."""
    return [value for name, value in module.named_buffers() if name.startswith(_TABLE)]


def _rows_in(module: Any, which: str) -> Data:
    """The rows of its table that a training is trained on; or those held out, all where none is."""
    *inputs, target = _columns_in(module)
    n_trained_on = _n_trained_on(module.of_problem.train_fraction, len(target))
    chosen = slice(n_trained_on)
    if which == "held out" and n_trained_on < len(target):
        chosen = slice(n_trained_on, None)
    return tuple(each[chosen] for each in inputs), target[chosen]


def _n_trained_on(train_fraction: float, n_rows: int) -> int:
    return min(max(round(train_fraction * n_rows), 1), n_rows)


@lru_cache(maxsize=32)
def _table_of(data: Call, values: tuple[tuple[str, Value], ...]) -> Data:
    """The table that a function makes of some values; it has to make the same one each time.

    Raises:
        SpecError: If it does not, or its inputs and target differ in their number of rows.
    """
    (inputs, target), again = (_parts(_seeded(data, dict(values))) for _ in range(2))
    if {len(each) for each in inputs} != {len(target)} or len(target) < 2:
        raise SpecError(
            "data",
            given=f"{[len(each) for each in inputs]} rows of inputs and {len(target)} of the target",
            expected="two rows or more, as many of each",
            fix="put the examples along the first axis",
        )
    if not all(map(torch.equal, (*inputs, target), (*again[0], again[1]))):
        raise SpecError(
            "data",
            given="other tensors when it is called again",
            expected="the same table each time: the split differs between seeds, the table does not",
            fix="take a `draw`, for data that differ between trainings; or seed your own generator",
        )
    return inputs, target


def _seeded(data: Call, values: Mapping[str, Value]) -> Any:
    """The global generators are seeded before, and as they were afterwards."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            np.random.seed(0)
            random.seed(0)
            return data(values)
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def _named(inputs: tuple[Tensor, ...]) -> Batch:
    return {f"inputs/{place}": each for place, each in enumerate(inputs)}


def _inputs_in(batch: Batch) -> tuple[Tensor, ...]:
    return tuple(value for name, value in batch.items() if name.startswith("inputs/"))


def _as_given(inputs: tuple[Tensor, ...]) -> Any:
    """A single input as a tensor, several as a tuple: as the function of data returned them."""
    return inputs[0] if len(inputs) == 1 else inputs


def _in_type(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def problem(
    name: str,
    *,
    model: Callable[..., nn.Module],
    data: Callable[..., Any],
    loss: str | Callable[..., Tensor],
    solved: float | When | None = None,
    metrics: Mapping[str, Callable[..., Tensor]] = MappingProxyType({}),
    levels: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
    heads: Mapping[str, Callable[..., Tensor]] = MappingProxyType({}),
    weights: Callable[..., Tensor] | None = None,
    outcomes: Mapping[str, Outcome] = MappingProxyType({}),
    events: Mapping[str, When] = MappingProxyType({}),
    defaults: Mapping[str, object] = MappingProxyType({}),
    eval_batch_size: int = 512,
    probe_every: int | None = None,
    summary: str = "",
) -> type[Problem]:
    """A workload put together from functions of ONE training.

    Their arguments are the parameters that a sweep may vary, with their defaults: `n_layers: int = 2`, or with a
    meaning and bounds `width: float = attnsweep.parameter(1.0, "its meaning", low=0)`. Whole numbers, names and
    switches are static: trainings that differ in them are trained in programs of their own. An argument of the same
    name is the same parameter in all functions. Those of every training, such as `n_steps`, need no default.

    Args:
        name: Of the workload.
        model: From parameters to any module. By default it starts as it initializes itself.
        data: From `draw` (a `Draw`), if it wants `step`, and parameters, to the data of one step: (inputs, target), the
            examples along the first axis. Several inputs are a tuple. Without `draw` it returns a table: each training
            is trained on a share `train_fraction` of its rows, drawn from its seed, and judged by the others.
        loss: `cross_entropy` (classes along the output's last axis, mean over targets that are not -100), `mse`, or a
            function of `output`, `target`, `inputs`, `module` and parameters.
        solved: The held-out loss below which a training is solved, or a condition such as `accuracy >= 0.99`; by
            default none is.
        metrics: Further scalars measured at each probe: functions of the same arguments as the loss's.
        levels: Further losses to compare with, functions of the same arguments; a training that stands at one is
            `marginal`.
        heads: Scores of attention heads by role: functions of `weights` (layer, example, head, query, key) and of what
            a loss may name, to (layer, head). The role of a head is that of its highest score, if that is at least
            0.5.
        weights: From what a loss may name to these weights; by default `module.attention(inputs)`, or where the module
            has no such method, the softmaxes of its forward pass (`attention_weights`).
        outcomes: Outcomes of its own, each with `when` it holds. They are tried in their order, after `solved`.
        events: What may happen to a training, and when it holds.
        defaults: Other defaults of the parameters of every training.
        eval_batch_size: What `data` gets as `batch_size`, if it names that, for the data of the probes.
        probe_every: Steps between two probes; by default they are rare late in a training.
        summary: One line for `attnsweep workloads`.

    Raises:
        SpecError: If something is missing or cannot be.
    """
    named = {"model": read_call("model", model), "data": read_call("data", data)}
    chosen, own_metrics, own_levels = read_loss(loss), _calls("metric", metrics), _calls("level", levels)
    calls = named | ({"loss": chosen.call} if chosen.call else {})
    calls |= {f"metric {each}": call for each, call in own_metrics.items()}
    calls |= {f"level {each}": call for each, call in own_levels.items()}
    roles, watched = _calls("head", heads), read_call("weights", weights or _weights)
    calls |= {f"head {each}": call for each, call in roles.items()} | {"weights": watched}
    given = dict.fromkeys(calls, _SEEN) | {"model": frozenset(), "data": _DRAWN}
    has_table = "draw" not in named["data"].names
    declared = parameters_class(
        name,
        calls,
        given,
        {**_DEFAULTS, **defaults},
        always_static=("data",) if has_table else (),
        more=_OF_TABLES if has_table else MappingProxyType({}),
    )
    level_names = ("zero", *chosen.level_names, *own_levels)
    attributes = {
        "__module__": model.__module__,
        "__doc__": summary or name,
        "name": name,
        "summary": summary or name.replace("_", " "),
        "parameters": declared,
        "level_names": level_names,
        "outcomes": dict(outcomes),
        "events": {event: _condition(when, f"the event {event}") for event, when in events.items()},
        **named,
        "training_loss": chosen,
        "metrics": own_metrics,
        "own_levels": own_levels,
        "heads": roles,
        "weights_of_heads": watched,
        "head_score_names": tuple(roles),
        "solved_below": float(solved) if isinstance(solved, int | float) else None,
        "table_of_verdicts": VerdictTable((_diverged(has_table), *_rules(solved, outcomes, level_names))),
        "eval_batch_size": eval_batch_size,
        "probe_every": probe_every,
    }
    return type(name, (Problem,), attributes)


_OF_TABLES: Mapping[str, tuple[Any, Any]] = MappingProxyType(
    {
        "train_fraction": (
            float,
            parameter(0.5, "share of the rows trained on; the others are held out", above=0.0, high=1.0, static=True),
        ),
        "batch_size": (int | None, parameter(None, "rows of one step; null = all", low=1, static=True)),
    }
)


def _weights(module: Any, inputs: Any) -> Tensor:
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    if not hasattr(module, "attention"):
        return attention_weights(module, *arguments)
    weights: Tensor = module.attention(*arguments)
    return weights


def _calls(role: str, functions: Mapping[str, object]) -> dict[str, Call]:
    return {name: read_call(f"{role} {name}", function) for name, function in functions.items()}


def _diverged(has_table: bool) -> Rule:
    """Of a table, the loss on the rows trained on diverges: that on the others rises while a training memorizes."""
    if not has_table:
        return Rule.diverged()
    return Rule(
        outcome="diverged",
        when=lambda _, evidence: has_diverged(evidence.metrics["loss"], evidence.levels["zero"]),
        says=f"training loss not finite, or above {DIVERGED_FACTOR:g} times `level_zero` and above its own start",
    )


def _rules(solved: object, outcomes: Mapping[str, Outcome], levels: tuple[str, ...]) -> list[Rule | AtLevel]:
    rules: list[Rule | AtLevel] = []
    if isinstance(solved, int | float):
        rules.append(Rule(outcome="solved", when=below_solved, says=f"held-out loss below {solved:g}"))
    elif solved is not None:
        rules.append(Rule(outcome="solved", when=_condition(solved, "solved"), says=_in_words(solved)))
    for label, outcome in outcomes.items():
        when = _condition(outcome.when, f"the outcome {label}")
        rules.append(Rule(outcome=label, when=when, says=_in_words(outcome.when)))
    for level in levels:
        stuck = "degenerate_zero" if level == "zero" else "marginal"
        rules.append(AtLevel(outcome=stuck, level=level, says="the output 0" if level == "zero" else level))
    return [*rules, Rule.moving()]


def _condition(when: object, subject: str) -> Condition:
    """A condition on parameters and evidence.

    Args:
        when: What the user gave.
        subject: What it is the condition of, in messages.

    Raises:
        SpecError: If it is neither a text nor a function.
    """
    if isinstance(when, str):
        terms_of(when)
        return lambda _, evidence: holds(when, evidence.metrics)
    if not callable(when):
        raise SpecError(
            f"the condition of {subject}",
            given=when,
            expected="a text such as `accuracy >= 0.99`, or a function of parameters and evidence",
            fix='write when="accuracy >= 0.99"' if subject.startswith("the outcome") else "give one",
        )
    condition: Condition = when
    return condition


def _in_words(when: object) -> str:
    return when if isinstance(when, str) else "a condition of the workload's own"
