"""The trainings of a full-model sweep, judged again from the ledger's curves. Axes: L training, P probe."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.engine.contract import Evidence


class Judged:
    """The trainings of a ledger as evidence, which can be judged again with any cut-offs.

    Failed trainings are left out.

    Attributes:
        rows: L rows of the table `trainings`.
        metrics: (L, P) by name; NaN where a training had ended.
    """

    def __init__(self, sweep: SweepDirectory) -> None:
        ledger = Ledger(sweep.place)
        trainings = ledger.trainings().filter(pa.compute.field("outcome") != "failed")
        self.rows: list[dict[str, Any]] = trainings.to_pylist()
        curves = ledger.curves(["training_id", "step", "metric", "value"])
        self.steps, probe = np.unique(curves["step"].to_numpy(), return_inverse=True)
        lane_of = {row["training_id"]: lane for lane, row in enumerate(self.rows)}
        lane = np.array([lane_of.get(each, -1) for each in _plain(curves["training_id"]).to_pylist()])
        metric = _plain(curves["metric"]).to_numpy(zero_copy_only=False)
        value = curves["value"].to_numpy()
        self.metrics: dict[str, NDArray[np.float64]] = {}
        for name in np.unique(metric):
            table = np.full((len(self.rows), self.steps.size), np.nan)
            chosen = (metric == name) & (lane >= 0)
            table[lane[chosen], probe[chosen]] = value[chosen]
            self.metrics[str(name)] = table
        finite = np.isfinite(self.metrics["eval_loss"])
        self._last = finite.shape[1] - 1 - np.argmax(finite[:, ::-1], axis=1)

    def column(self, name: str) -> NDArray[Any]:
        """(L,) a column of `trainings`, as Python objects."""
        found = np.empty(len(self.rows), dtype=object)
        found[:] = [row[name] for row in self.rows]
        return found

    def at_end(self, metric: str) -> NDArray[np.float64]:
        """(L,) a metric at each training's last probe."""
        values: NDArray[np.float64] = self.metrics[metric][np.arange(len(self.rows)), self._last]
        return values

    @property
    def gamma(self) -> NDArray[np.float64]:
        """(L,) the relative gradient |gradient| |theta| / loss at the end."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.at_end("train_grad_norm") * self.at_end("param_norm") / self.at_end("loss")

    def outcome(self, solved_factor: float = 1.0) -> NDArray[np.str_]:
        """(L,) outcomes under the cut-offs as they are now set.

        Args:
            solved_factor: Multiplies the level below which a training is solved.
        """
        found = np.empty(len(self.rows), dtype="<U15")
        activation = self.column("param_attention_activation")
        for each in ("identity", "softmax"):
            chosen = np.flatnonzero(activation == each)
            if chosen.size:
                found[chosen] = self._outcome(chosen, solved_factor)
        overflowed = np.array([step is not None for step in self.column("diverged_step")])
        return np.where(overflowed, "diverged", found)

    def _outcome(self, chosen: NDArray[np.int64], solved_factor: float) -> NDArray[np.str_]:
        """Outcomes of trainings that are equal in all parameters that the judge reads."""
        levels = {name: self.column(f"level_{name}")[chosen].astype(float) for name in ("zero", "mean", "cur")}
        levels["solved"] = solved_factor * self.column("loss_level")[chosen].astype(float)
        metrics = {name: table[chosen] for name, table in self.metrics.items()}
        evidence = Evidence(steps=self.steps.astype(np.int64), metrics=metrics, levels=levels)
        with np.errstate(invalid="ignore"):
            verdicts = CategoryPairs().judge(parameters_of(self.rows[chosen[0]]), evidence)
        outcome: NDArray[np.str_] = verdicts.outcome[np.arange(chosen.size), self._last[chosen]]
        return outcome


def parameters_of(row: dict[str, Any]) -> CategoryPairsParameters:
    """The parameters of a training, from its row."""
    declared = CategoryPairsParameters.declared()
    return CategoryPairsParameters.resolve({name: row[f"param_{name}"] for name in declared})


@contextmanager
def cut_off(module: ModuleType, name: str, factor: float) -> Iterator[None]:
    """Multiplies a cut-off of the judge while the block runs."""
    was = getattr(module, name)
    setattr(module, name, factor * was)
    try:
        yield
    finally:
        setattr(module, name, was)


def _plain(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks().dictionary_decode()
