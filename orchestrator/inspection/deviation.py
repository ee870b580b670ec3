"""How far a training that was repeated is from its rows in the ledger."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from attnsweep.orchestrator.training.messages import Rows

TOLERANCES: Mapping[str, float] = {"float64": 1e-6, "float32": 1e-2, "bfloat16": 0.3}
"""The largest difference at which two losses agree, by floating-point type, relative to the larger of the losses and
the solved level, below which losses are rounding noise.

On machines of one type, with one version of PyTorch, replays are equal to the last bit. Another processor, a GPU or
another version rounds differently, and a saddle amplifies the difference: to at most 2e-12 in float64 and 6e-4 in
float32 between AVX-512 and plain instructions, over 31 trainings of `quickstart`. The tolerances allow for that, but
hardly for another initialization, batch or step.
"""

_LOSSES = ("final_loss", "eval_loss")


def last_line(error: str | None) -> str:
    """An error's type and message."""
    return (error or "").rstrip().rpartition("\n")[2]


@dataclass(frozen=True, kw_only=True, slots=True)
class Deviation:
    """A repeated training beside the recorded one.

    Attributes:
        recorded, replayed: Rows of `trainings`.
        differences: For each `kind` of numbers, such as `curves`, how many were measured both times (`n`) and only once
            (`n_once`), the largest difference, `absolute` and `relative` to the larger number, and `where` the absolute
            one is largest.
    """

    recorded: Mapping[str, Any]
    replayed: Mapping[str, Any]
    differences: pa.Table

    @property
    def tolerance(self) -> float:
        return TOLERANCES[self.recorded["param_dtype"]]

    @property
    def absolute(self) -> float:
        return float(max(self.differences["absolute"].to_pylist()))

    @property
    def relative(self) -> float:
        return float(max(self.differences["relative"].to_pylist()))

    @property
    def of_losses(self) -> float:
        """The larger relative difference of the training and the evaluation loss; infinite where one side lacks one."""
        return max(self._distance(name) for name in _LOSSES)

    @property
    def agrees(self) -> bool:
        return not self.disagreements

    @property
    def disagreements(self) -> list[str]:
        """The columns that differ, among outcome, detail, steps, losses (beyond the tolerance) and kind of error."""
        names = ("outcome", "outcome_detail", "n_steps")
        same = {name: self.recorded[name] == self.replayed[name] for name in names}
        same |= {name: self._distance(name) <= self.tolerance for name in _LOSSES}
        # Messages may contain memory addresses and sizes.
        same["error"] = _kind(self.recorded) == _kind(self.replayed)
        return [name for name, is_same in same.items() if not is_same]

    def _distance(self, name: str) -> float:
        a, b = self.recorded[name], self.replayed[name]
        if a is None or b is None:
            return 0.0 if a is b else math.inf
        return float(abs(a - b) / (max(abs(a), abs(b), self.recorded["loss_level"] or 0.0) or 1.0))


def deviation(recorded: Rows, replayed: Rows, *, thinned: bool = False) -> Deviation:
    """If the recorded curves were `thinned`, only the probes that they keep are compared."""
    (before,), (after,) = recorded.trainings.to_pylist(), replayed.trainings.to_pylist()
    numbers, others = _numbers(before, recorded), _numbers(after, replayed)
    if thinned:
        others["curves"] = {name: value for name, value in others["curves"].items() if name in numbers["curves"]}
    differences = [_difference(kind, numbers[kind], others[kind]) for kind in numbers]
    return Deviation(recorded=before, replayed=after, differences=pa.Table.from_pylist(differences))


def _numbers(row: Mapping[str, Any], rows: Rows) -> dict[str, dict[str, float]]:
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
    return {
        kind: {name: value for name, value in values.items() if value is not None} for kind, values in kinds.items()
    }


def _difference(kind: str, a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, Any]:
    gaps = {key: abs(a[key] - b[key]) for key in a.keys() & b.keys()}
    largest = max(gaps, key=lambda key: gaps[key], default="")
    return {
        "kind": kind,
        "n": len(gaps),
        "n_once": len(a.keys() ^ b.keys()),
        "absolute": gaps.get(largest, 0.0),
        "relative": max((gap / max(abs(a[key]), abs(b[key])) for key, gap in gaps.items() if gap), default=0.0),
        "where": largest if gaps.get(largest) else "",
    }


def _kind(row: Mapping[str, Any]) -> str:
    return last_line(row["error"]).partition(":")[0]
