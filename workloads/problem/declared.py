"""The function `attnsweep.problem`."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from attnsweep.workloads.conditions import terms_of
from attnsweep.workloads.declaration import parameter
from attnsweep.workloads.engine.outcomes import has_diverged
from attnsweep.workloads.engine.verdicts import AtLevel, Condition, Rule, VerdictTable, When, below_solved
from attnsweep.workloads.errors import SpecError, did_you_mean
from attnsweep.workloads.head_maps import attention_weights
from attnsweep.workloads.lenses import Lenses
from attnsweep.workloads.problem.functions import HEADS, Call, parameters_class, read_call, read_loss
from attnsweep.workloads.problem.problem import Problem
from attnsweep.workloads.vocabulary import NO_ROLE, RESERVED_METRICS, Outcome

_FOR_DATA = frozenset({"draw", "fixed", "step"})
_FOR_LOSSES = frozenset({"module", "inputs", "target", "output"})
_FOR_HEADS = _FOR_LOSSES | {"weights"}
_DEFAULTS: Mapping[str, object] = MappingProxyType({"init_sigma": None, "dtype": "float32"})


def problem(
    name: str,
    *,
    model: Callable[..., nn.Module],
    data: Callable[..., Any],
    loss: str | Callable[..., Tensor],
    solved: float | When | None = None,
    metrics: Mapping[str, Callable[..., Tensor]] = MappingProxyType({}),
    levels: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
    heads: Mapping[str, Callable[..., Tensor]] | Sequence[str] = (),
    weights: Callable[..., Tensor] | None = None,
    certificates: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
    initial: Callable[..., Mapping[str, Tensor]] | None = None,
    outcomes: Mapping[str, Outcome] = MappingProxyType({}),
    events: Mapping[str, When] = MappingProxyType({}),
    defaults: Mapping[str, object] = MappingProxyType({}),
    eval_batch_size: int | None = None,
    eval_step: int | None = None,
    probe_steps: int | Sequence[int] | Callable[..., Sequence[int]] | None = None,
    loss_may_be_negative: bool = False,
    files: tuple[str, ...] = (),
    vocabulary: Sequence[str] = (),
    summary: str = "",
) -> type[Problem]:
    """Makes a workload class from functions for one training, whose arguments are the parameters that a sweep may vary.
    docs/problem.md describes them (`attnsweep docs problem`)."""
    of_model, of_data, chosen = read_call("model", model), read_call("data", data), read_loss(loss)
    has_table = "draw" not in of_data.names
    _check_data(of_data.names, eval_step, probe_steps)
    # With a table the loss's metric names are refused: beside a user's `accuracy`, `train_accuracy` would be another
    # measure.
    of_loss = [f"{use}{metric}" for use in ("", "train_") for metric in chosen.metric_names if has_table]
    own_metrics = _calls("metric", metrics, (*RESERVED_METRICS, *of_loss))
    own_levels = _calls("level", levels, ("solved", "zero", *chosen.level_names))
    roles, tests = _calls("head", _scores(heads), (NO_ROLE,)), _calls("certificate", certificates, ())
    of_weights = read_call("weights", weights or _weights)
    own_initial = read_call("initial", initial) if initial else None
    own_probes = read_call("probe_steps", probe_steps) if callable(probe_steps) else probe_steps

    # The arguments that the engine supplies; all others are parameters.
    supplied = {of_model: frozenset[str](), of_data: _FOR_DATA}
    supplied |= dict.fromkeys((*([chosen.call] if chosen.call else []), *own_metrics.values()), _FOR_LOSSES)
    supplied |= dict.fromkeys(own_levels.values(), _FOR_LOSSES)
    supplied |= dict.fromkeys((*roles.values(), *tests.values()), _FOR_HEADS) | {of_weights: _FOR_LOSSES}
    supplied |= {own_initial: frozenset({"module", "draw"})} if own_initial else {}
    supplied |= {own_probes: frozenset()} if isinstance(own_probes, Call) else {}
    parameters = parameters_class(
        name,
        supplied,
        reserved=_FOR_DATA | _FOR_HEADS,
        defaults={**_DEFAULTS, **defaults},
        always_static=("data",) if has_table else (),
        more=_OF_TABLES if has_table else MappingProxyType({}),
    )
    level_names = ("zero", *chosen.level_names, *own_levels)
    attributes = {
        "__module__": model.__module__,
        "__doc__": summary or name,
        "name": name,
        "summary": summary or name.replace("_", " "),
        "parameters": parameters,
        "level_names": level_names,
        "outcomes": dict(outcomes),
        "events": {event: _checked(when, f"the event {event}") for event, when in events.items()},
        "model": of_model,
        "data": of_data,
        "training_loss": chosen,
        "metrics": own_metrics,
        "own_levels": own_levels,
        "heads": roles,
        "weights_of_heads": of_weights,
        "head_score_names": tuple(roles),
        "solved_below": float(solved) if isinstance(solved, int | float) else None,
        "verdicts": VerdictTable((_diverged(has_table), *_rules(solved, outcomes, level_names))),
        "eval_batch_size": eval_batch_size,
        "eval_step": eval_step,
        "loss_may_be_negative": loss_may_be_negative,
        "own_probe_steps": own_probes,
        "own_initial": own_initial,
        "certificates": tests,
        "files": files,
    }
    kind: type[Problem] = type(name, (Problem,), attributes)
    maps = None if weights is None else lambda module, batch: [*kind().attention(module, batch)]
    kind.lenses = Lenses(attention=maps, vocabulary=lambda _: vocabulary)
    return kind


def _check_data(names: tuple[str, ...], eval_step: int | None, probe_steps: object) -> None:
    if {"draw", "fixed"} <= {*names}:
        expected = "`draw` for new data at each step, or `fixed` for a table of each training"
        fix = "for what stays the same beside what is drawn at each step, use draw.fixed"
        raise SpecError("data", given="the arguments draw and fixed", expected=expected, fix=fix)
    if eval_step is not None and ("step" not in names or eval_step < 0):
        expected = "a step from 0 on, for a function `data` with the argument `step`"
        fix = "add the argument `step` to `data`, or leave eval_step out"
        raise SpecError("eval_step", given=eval_step, expected=expected, fix=fix)
    never = isinstance(probe_steps, int) and probe_steps < 1
    too_early = isinstance(probe_steps, Sequence) and min(probe_steps, default=0) < 0
    if never or too_early:
        expected = "a number of steps, at least 1, or steps from 0 on"
        raise SpecError("probe_steps", given=probe_steps, expected=expected, fix="or leave it out")


_OF_TABLES: Mapping[str, tuple[Any, Any]] = MappingProxyType(
    {
        "train_fraction": (
            float,
            parameter(0.5, "share of the rows trained on; the others are held out", above=0.0, high=1.0, static=True),
        ),
        "batch_size": (int | None, parameter(None, "rows of one step; null = all", low=1, static=True)),
        "replacement": (
            bool,
            parameter(False, "draw the rows of each step anew, not as batches of a random order", static=True),
        ),
    }
)


def _weights(module: Any, inputs: Any) -> Tensor:
    return attention_weights(module, *(inputs if isinstance(inputs, tuple) else (inputs,)))


def _scores(heads: Mapping[str, Callable[..., Tensor]] | Sequence[str]) -> Mapping[str, Callable[..., Tensor]]:
    if isinstance(heads, Mapping):
        return heads
    for name in heads:
        if name not in HEADS:
            own = "pass a dictionary of functions for scores of your own"
            fix = did_you_mean(name, HEADS, otherwise=own)
            raise SpecError("heads", given=name, expected=f"names among {', '.join(HEADS)}", fix=fix)
    return {name: HEADS[name] for name in heads}


def _calls(kind: str, functions: Mapping[str, object], taken: tuple[str, ...]) -> dict[str, Call]:
    for name in functions:
        if not name.isidentifier() or name.lower() in taken:
            others = f", and not, whatever its case, one of {', '.join(taken)}" if taken else ""
            expected = f"a name of letters, digits and _{others}"
            raise SpecError(f"{kind}s", given=name, expected=expected, fix=f"write for example own_{kind}")
    return {name: read_call(f"{kind} {name}", function) for name, function in functions.items()}


def _diverged(has_table: bool) -> Rule:
    if not has_table:
        return Rule.diverged()
    # While a training memorizes the table its held-out loss rises too: the training loss decides.
    return Rule(
        outcome="diverged", when=lambda _, evidence: has_diverged(evidence.metrics["loss"], evidence.levels["zero"])
    )


def _rules(solved: object, outcomes: Mapping[str, Outcome], levels: tuple[str, ...]) -> list[Rule | AtLevel]:
    rules: list[Rule | AtLevel] = []
    if isinstance(solved, int | float):
        rules.append(Rule(outcome="solved", when=below_solved))
    elif solved is not None:
        rules.append(Rule(outcome="solved", when=_checked(solved, "solved")))
    for label, outcome in outcomes.items():
        rules.append(Rule(outcome=label, when=_checked(outcome.when, f"the outcome {label}")))
    for level in levels:
        stuck = "degenerate_zero" if level == "zero" else "marginal"
        rules.append(AtLevel(outcome=stuck, level=level))
    return [*rules, Rule.moving()]


def _checked(when: object, subject: str) -> When:
    if isinstance(when, str):
        terms_of(when)
        return when
    if not callable(when):
        expected = "a text, or a function of the parameters and the measurements"
        fix = f'write {"when=" if subject.startswith("the outcome") else ""}"accuracy >= 0.99"'
        raise SpecError(f"the condition of {subject}", given=when, expected=expected, fix=fix)
    condition: Condition = when
    return condition
