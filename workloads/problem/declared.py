"""`attnsweep.problem`: from a model, data, a loss and conditions to the class of a workload."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from attnsweep.workloads.attention_weights import attention_weights
from attnsweep.workloads.conditions import terms_of
from attnsweep.workloads.declaration import parameter
from attnsweep.workloads.diagnostics.outcomes import DIVERGED_FACTOR, has_diverged
from attnsweep.workloads.diagnostics.verdicts import AtLevel, Rule, VerdictTable, below_solved
from attnsweep.workloads.engine.contract import Condition, When
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.problem.arguments import Call, parameters_class, read_call
from attnsweep.workloads.problem.losses import read_loss
from attnsweep.workloads.problem.problem import Problem
from attnsweep.workloads.vocabulary import Outcome

_DRAWN = frozenset({"draw", "step"})
_SEEN = frozenset({"module", "inputs", "target", "output", "weights"})
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
        "events": {event: _checked(when, f"the event {event}") for event, when in events.items()},
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
        rules.append(Rule(outcome="solved", when=_checked(solved, "solved")))
    for label, outcome in outcomes.items():
        rules.append(Rule(outcome=label, when=_checked(outcome.when, f"the outcome {label}")))
    for level in levels:
        stuck = "degenerate_zero" if level == "zero" else "marginal"
        rules.append(AtLevel(outcome=stuck, level=level, says="the output 0" if level == "zero" else level))
    return [*rules, Rule.moving()]


def _checked(when: object, subject: str) -> When:
    """A condition on parameters and evidence, as it was given.

    Args:
        when: What the user gave.
        subject: What it is the condition of, in messages.

    Raises:
        SpecError: If it is neither a text nor a function.
    """
    if isinstance(when, str):
        terms_of(when)
        return when
    if not callable(when):
        raise SpecError(
            f"the condition of {subject}",
            given=when,
            expected="a text such as `accuracy >= 0.99`, or a function of parameters and evidence",
            fix='write when="accuracy >= 0.99"' if subject.startswith("the outcome") else "give one",
        )
    condition: Condition = when
    return condition
