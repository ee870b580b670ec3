"""Why a training is stuck where it ended: its gradient by parameter, the curvature of its loss, kicks, its certificate,
and whether it will leave."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from attnsweep.orchestrator.analysis.tables import to_json
from attnsweep.orchestrator.inspection.kept_weights import ends_of
from attnsweep.orchestrator.inspection.recorded import ended_training
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.diagnostics.escape import predicted_escapes
from attnsweep.workloads.diagnostics.kicks import MOST_TELLING, kick_and_train
from attnsweep.workloads.diagnostics.negative_curvature import Saddle, saddle_of
from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.engine.contract import Batch, Lanes, Training, Workload
from attnsweep.workloads.engine.functional import gradients_of
from attnsweep.workloads.engine.intervening import hold_as
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.lenses import batch_of
from attnsweep.workloads.user_code import users_code

_EXPECTED, _FIX = "a workload that trains", "see attnsweep.check_workload"
_LEAST_SHARE = 0.01
_OF_STEPS = ("loss", "grad_norm", "param_norm")
"""Curves that the lines above the course speak of."""
_MAX_NAMES = 8
_KICK_STEPS = 100


@dataclass(frozen=True, kw_only=True)
class Why:
    """A training at its end, in float64, on the batch of its first step.

    Attributes:
        difference: Empty, or how the repeated training's end differs from the recorded one; all else is then about the
            repeated one.
        weights, gradients: The norms of its weights, and of the loss's gradients by them, by name.
        saddle: `None` where the loss has no second derivatives.
        loss, kicked: The held-out loss, before and after the last kick that was tried and L-BFGS.
        freed_by: The smallest kick, relative to the weights, after which the loss falls by 5%; `None` if none did.
        by_heart: No held-out loss fell, but that of the batch did: kicks prove nothing.
        curves: `eval_loss` and the workload's metrics at its probes, as (step, value).
        predicted_escape: The step at which it leaves its start, by the law of such starts; `None` without a law,
            infinite if it never leaves.
    """

    sweep: str
    row: Mapping[str, Any]
    learning_rate: float
    difference: str
    weights: Mapping[str, float]
    gradients: Mapping[str, float]
    saddle: Saddle | None
    loss: float
    kicked: float
    freed_by: float | None
    by_heart: bool
    curves: Mapping[str, Sequence[tuple[int, float]]]
    predicted_escape: float | None

    @property
    def replay_command(self) -> str:
        return f"attnsweep replay {as_argument(self.sweep)} {self.row['trial']}/{self.row['replicate']}"

    def print(self, console: Console) -> None:
        for line in self.lines():
            console.print(line, soft_wrap=True, markup=False, highlight=False)

    def lines(self) -> Iterator[str]:
        row = self.row
        detail = f" ({row['outcome_detail']})" if row["outcome_detail"] else ""
        loss = "" if row["eval_loss"] is None else f", loss {row['eval_loss']:.4g} after {row['n_steps']} steps"
        yield f"{row['trial']}/{row['replicate']}  {row['outcome']}{detail}{loss}: {self._verdict()}"
        if self.difference:
            yield f"another ending: {self.difference}; what follows is about that ending"
        yield f"gradient: {self._gradient()}"
        yield f"curvature: {self._curvature()}"
        yield f"kicks: {self._kicks()}"
        yield f"forecast: {self._forecast()}"
        yield f"certificate: {self._certificate()}"
        courses = (
            f"{name} {', '.join(f'{value:.3g} at step {step}' for step, value in (*curve[:1], *curve[-1:]))}"
            for name, curve in self.curves.items()
        )
        yield f"course: {_listed(courses)}"
        yield f"replay: {self.replay_command}"

    def _verdict(self) -> str:
        if not self.row["stuck"]:
            return "not stuck"
        if (escape := self.predicted_escape) is not None and self.row["n_steps"] <= escape < math.inf:
            return "slow, not stuck"
        if self.row["outcome"] == "runaway":  # a kick there helps only further down
            return "in a valley that falls without an end"
        if self.is_freed:
            return "held at a saddle, which a small kick frees"
        if self.row["certified"]:
            return "confirmed by its certificate"
        return "stuck or slow: more steps tell" if self.by_heart else "no small kick frees it"

    @property
    def is_freed(self) -> bool:
        return self.freed_by is not None and self.freed_by <= MOST_TELLING

    def _gradient(self) -> str:
        total = math.hypot(*self.gradients.values())
        return f"norm {total:.2g}; {_listed(f'{name} {norm:.1e}' for name, norm in _largest(self.gradients))}"

    def _curvature(self) -> str:
        if self.saddle is None:
            return "not known: the loss has no second derivatives"
        if not self.saddle.is_negative:
            return "no direction was found in which the loss curves down"
        shares = (f"{name} {share:.0%}" for name, share in _largest(self.saddle.weights) if share >= _LEAST_SHARE)
        steps = self.saddle.steps(self.learning_rate)
        return (
            f"the loss curves down along {_listed(shares)}; second derivative {self.saddle.curvature:.2g}; under plain"
            f" gradient descent a deviation grows e-fold in {steps:,.3g} steps"
        )

    def _kicks(self) -> str:
        change = f"loss {self.loss:.4g} to {self.kicked:.4g}"
        if self.by_heart:
            return f"prove nothing: what is learned after them is the batch, by heart (held-out {change})"
        if self.freed_by is None:
            return f"not even noise as large as the weights frees it ({change})"
        reservation = "" if self.is_freed else ", which is a new start and tells nothing"
        return f"noise of {self.freed_by:.0%} of the weights frees it{reservation} ({change})"

    def _forecast(self) -> str:
        n_steps = self.row["n_steps"]
        if self.predicted_escape is None:
            return (
                "no law for this start (a law needs plain gradient descent, a small init_sigma, and a loss that is the "
                "same at each step)"
            )
        if not math.isfinite(self.predicted_escape):
            return "by the law of its start it never leaves"
        so = "so it has left its start" if self.predicted_escape < n_steps else "so it is slow, not stuck"
        return f"by the law of its start it leaves at step {self.predicted_escape:.0f}; it trained {n_steps}, {so}"

    def _certificate(self) -> str:
        if self.row["certified"] is None:
            return "the label was not tested"
        verb = "confirms" if self.row["certified"] else "does not confirm"
        return f"{self.row['certificate']} {verb} {self.row['outcome']}"

    def to_json(self) -> str:
        """One line; numbers that are not finite become null."""
        names = ("training_id", "trial", "replicate", "outcome", "outcome_detail", "certificate", "certified")
        return to_json(
            {name: self.row[name] for name in names}
            | {
                "verdict": self._verdict(),
                "difference": self.difference,
                "predicted_escape_step": self.predicted_escape,
                "norms": self.weights,
                "gradient_norms": self.gradients,
                "smallest_curvature": self.saddle,
                "kick": {"loss": self.loss, "after": self.kicked, "freed_by": self.freed_by, "by_heart": self.by_heart},
                "replay": self.replay_command,
            }
        )


def why(directory: SweepDirectory, name: str, shown: str) -> Why:
    """Examines a training, which is trained again if its weights were not kept. `shown`: the directory as the user
    named it."""
    workload = load_workload_of(directory)
    query = "select trial, replicate from trainings where stuck"
    row, rows, training = ended_training(directory, workload, name, query)
    (end,) = ends_of(directory, [row["training_id"]])
    curves: dict[str, list[tuple[int, float]]] = {"eval_loss": []}
    for point in sorted(rows.curves.to_pylist(), key=itemgetter("metric", "step")):
        if point["metric"] not in _OF_STEPS and point["value"] is not None:
            curves.setdefault(point["metric"], []).append((point["step"], point["value"]))
    with training_settings(), users_code(workload.name, _EXPECTED, _FIX):
        objective, held_out, parameters = _objectives(workload, training, end.state)
        streams = Lanes([training], torch.device("cpu")).streams
        leaves = {name: value.requires_grad_() for name, value in parameters.items()}
        gradients = gradients_of("loss", objective.losses(leaves), leaves)
        parameters = {name: value.detach() for name, value in leaves.items()}
        kicked = kick_and_train(objective, parameters, streams, _KICK_STEPS, judged_by=held_out)
        (predicted,) = predicted_escapes(workload, [training])
        smallest = float(kicked.smallest[0])
        return Why(
            sweep=shown,
            row=row,
            learning_rate=training.parameters.learning_rate,
            difference=end.difference,
            weights={name: float(value.norm()) for name, value in parameters.items()},
            gradients={name: float(value.norm()) for name, value in gradients.items()},
            saddle=saddle_of(objective, parameters, streams),
            loss=float(kicked.before[0]),
            kicked=float(kicked.after[0]),
            freed_by=None if math.isnan(smallest) else smallest,
            by_heart=bool(kicked.by_heart[0]),
            curves=curves,
            predicted_escape=None if math.isnan(predicted) else float(predicted),
        )


def _objectives(workload: Workload[Any], training: Training[Any], state: State) -> tuple[Objective, Objective, State]:
    """The loss on the first batch, the held-out loss, and the parameters, all in float64."""
    module = workload.build(training.parameters).double()
    promoted = {name: value.to(torch.float64) if value.is_floating_point() else value for name, value in state.items()}
    hold_as(module, promoted)
    module.load_state_dict(promoted, strict=False)
    batch = {name: value.unsqueeze(0) for name, value in batch_of(workload, training).items()}
    buffers = {name: value.unsqueeze(0) for name, value in module.named_buffers()}
    parameters = {name: value.detach().clone().unsqueeze(0) for name, value in module.named_parameters()}

    def held_out(module: nn.Module, batch: Batch) -> Tensor:
        return workload.evaluate(module, batch)["eval_loss"]

    eval_batch = {
        name: value.double() if value.is_floating_point() else value
        for name, value in workload.eval_batch(Lanes([training], torch.device("cpu"))).items()
    }
    judged = Objective(copy.deepcopy(module).eval(), held_out, buffers, eval_batch)
    return Objective(module, workload.loss, buffers, batch), judged, parameters


def _largest(sizes: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(sizes.items(), key=lambda item: -item[1])


def _listed(texts: Iterator[str]) -> str:
    listed = list(texts)
    more = f", and {len(listed) - _MAX_NAMES} more" if len(listed) > _MAX_NAMES else ""
    return ", ".join(listed[:_MAX_NAMES]) + more
