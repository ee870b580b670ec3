"""Measures how far the results of a training that was repeated differ from those in the ledger."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from attnsweep.orchestrator.training.messages import Rows

TOLERANCES: Mapping[str, float] = {"float64": 1e-6, "float32": 1e-2, "bfloat16": 0.3}
"""The largest difference at which two losses agree, by floating-point type, relative to the larger of the losses and
the solved level (the loss below which a training counts as solved).

On machines of one type, with one version of PyTorch, replays are equal to the last bit. Another processor, a GPU or
another version rounds differently, and a saddle amplifies the difference: by at most 2e-12 in float64 and 6e-4 in
float32 between AVX-512 and plain instructions, over 31 trainings of `quickstart`. The tolerances allow for that, but
hardly for another initialization, batch or step. Below the solved level losses are rounding noise.
"""

_LOSSES = ("final_loss", "eval_loss")


def last_line(error: str) -> str:
    """An error's type and message."""
    return error.rstrip().rpartition("\n")[2]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    outcome: str
    outcome_detail: str | None
    n_steps: int
    onset_step: int | None
    final_loss: float | None
    eval_loss: float | None
    grad_norm: float | None
    device: str | None
    host: str | None
    error: str | None

    @property
    def last_words(self) -> str | None:
        return last_line(self.error) if self.error else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The largest difference between recorded and repeated measurements of one kind.

    Attributes:
        name: The kind of numbers, such as `eval_loss`, `levels` or `curves`.
        n: How many numbers were measured both times.
        n_once: How many numbers were measured only once.
        absolute: The largest |a - b|.
        relative: The largest |a - b| / max(|a|, |b|).
        where: The number with the largest absolute difference; empty if all are equal.
    """

    name: str
    n: int
    n_once: int
    absolute: float
    relative: float
    where: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Deviation:
    """How far a repeated training is from its rows.

    Attributes:
        differences: One for each loss and the norm of the gradient, and one each for all levels, all points of curves
            (by metric and step) and all scores of heads (by step, layer and head).
        tolerance: The relative tolerance of the losses, from `TOLERANCES`.
        loss_level: The loss below which a training counts as solved; 0 if unknown.
    """

    training_id: str
    trial: int
    replicate: int
    recorded: Ending
    replayed: Ending
    differences: tuple[Difference, ...]
    tolerance: float
    loss_level: float

    @property
    def absolute(self) -> float:
        return max(difference.absolute for difference in self.differences)

    @property
    def relative(self) -> float:
        return max(difference.relative for difference in self.differences)

    @property
    def of_losses(self) -> float:
        """Of the training and the evaluation loss. A loss that is missing on one side makes it infinite."""
        return max(self._apart(name) for name in _LOSSES)

    @property
    def agrees(self) -> bool:
        return not self.disagreements

    @property
    def disagreements(self) -> list[str]:
        """The columns in which the ends differ: outcome, detail, steps, losses beyond the tolerance, kind of error."""
        names = ("outcome", "outcome_detail", "n_steps")
        same = {name: getattr(self.recorded, name) == getattr(self.replayed, name) for name in names}
        same |= {name: self._apart(name) <= self.tolerance for name in _LOSSES}
        # Only the types of the errors are compared, because their messages may contain memory addresses and sizes.
        same["error"] = _kind(self.recorded) == _kind(self.replayed)
        return [name for name, is_same in same.items() if not is_same]

    def _apart(self, name: str) -> float:
        a: float | None = getattr(self.recorded, name)
        b: float | None = getattr(self.replayed, name)
        if a is None or b is None:
            return 0.0 if a is b else math.inf
        return abs(a - b) / (max(abs(a), abs(b), self.loss_level) or 1.0)


def deviation(recorded: Rows, replayed: Rows, *, thinned: bool = False) -> Deviation:
    """If the recorded curves are `thinned`, only the remaining probes are compared."""
    (before,), (after,) = recorded.trainings.to_pylist(), replayed.trainings.to_pylist()
    numbers, replayed_numbers = _numbers(before, recorded), _numbers(after, replayed)
    if thinned:
        kept = numbers["curves"]
        replayed_numbers["curves"] = {at: value for at, value in replayed_numbers["curves"].items() if at in kept}
    return Deviation(
        training_id=before["training_id"],
        trial=before["trial"],
        replicate=before["replicate"],
        recorded=_ending(before),
        replayed=_ending(after),
        differences=tuple(_difference(name, numbers[name], replayed_numbers[name]) for name in numbers),
        tolerance=TOLERANCES[before["param_dtype"]],
        loss_level=before["loss_level"] or 0.0,
    )


def _numbers(row: Mapping[str, Any], rows: Rows) -> dict[str, dict[str, float]]:
    """By kind, such as losses and scores of heads."""
    scores = {
        f"{name} of layer {head['layer']}, head {head['head']} at step {head['step']}": value
        for head in (() if rows.heads is None else rows.heads.to_pylist())
        for name, value in head.items()
        if name.startswith("score_")
    }
    kinds = {name: {name: row[name]} for name in (*_LOSSES, "grad_norm")} | {
        "levels": {name: row[name] for name in row if name.startswith("level_") or name == "loss_level"},
        "curves": {f"{point['metric']} at step {point['step']}": point["value"] for point in rows.curves.to_pylist()},
        "heads": scores,
    }
    return {kind: {at: value for at, value in values.items() if value is not None} for kind, values in kinds.items()}


def _difference(name: str, a: Mapping[str, float], b: Mapping[str, float]) -> Difference:
    gaps = {key: abs(a[key] - b[key]) for key in a.keys() & b.keys()}
    largest = max(gaps, key=lambda key: gaps[key], default=None)
    return Difference(
        name=name,
        n=len(gaps),
        n_once=len(a.keys() ^ b.keys()),
        absolute=max(gaps.values(), default=0.0),
        relative=max((gap / max(abs(a[key]), abs(b[key])) for key, gap in gaps.items() if gap), default=0.0),
        where=largest if largest is not None and gaps[largest] else "",
    )


def _ending(row: Mapping[str, Any]) -> Ending:
    return Ending(**{field.name: row[field.name] for field in fields(Ending)})


def _kind(ending: Ending) -> str | None:
    return ending.last_words and ending.last_words.partition(":")[0]
