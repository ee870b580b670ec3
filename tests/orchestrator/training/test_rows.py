"""From a trained pack to rows: the properties that readers of the ledger rely on."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from attnsweep.orchestrator.ledger.schema import curves_schema, schemas_of
from attnsweep.orchestrator.training.rows import PackContext, curve_rows, ended_rows, head_rows, trained_rows
from attnsweep.orchestrator.training.tasks import Task, training_id
from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.engine.contract import Certificate, Lanes, Training
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.probing import probe_steps_of
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults

WORKLOAD = CategoryPairs()
CONTEXT = PackContext("s", "p", "cpu", "here")
SOLVES, OVERFLOWS, STAYS = THREE = (
    {"init_sigma": 0.05, "learning_rate": 0.05},
    {"init_sigma": 2.0, "learning_rate": 5.0},
    {"init_sigma": 1e-4, "learning_rate": 1e-4},
)
"""A training that solves, one that overflows, one that stays at the zero."""


def _tasks(*settings: Mapping[str, Value]) -> list[Task]:
    trainings = [Training(defaults(WORKLOAD, n_steps=300, **each), seed) for seed, each in enumerate(settings)]
    return [Task(trial, 0, training) for trial, training in enumerate(trainings)]


@pytest.fixture(scope="module")
def trained() -> tuple[pa.Table, pa.Table]:
    tasks = _tasks(*THREE)
    pack = Pack(WORKLOAD, [task.training for task in tasks])
    pack.train_to_end()
    certificates = [None, None, Certificate("negative_curvature", agrees=True)]
    result = pack.result()
    assert head_rows(WORKLOAD, tasks, result) is None
    verdicts = judged(WORKLOAD, tasks[0].training.parameters, result.evidence)
    return trained_rows(WORKLOAD, tasks, result, verdicts, certificates, CONTEXT), curve_rows(WORKLOAD, tasks, result)


def test_an_overflow_is_null_and_dated_by_its_outcome(trained: tuple[pa.Table, pa.Table]) -> None:
    rows = trained[0].to_pylist()
    assert [row["outcome"] for row in rows] == ["solved", "diverged", "degenerate_zero"]
    overflowed = rows[1]
    assert overflowed["final_loss"] is overflowed["eval_loss"] is overflowed["grad_norm"] is None
    assert overflowed["diverged_step"] == overflowed["n_steps"] > 0
    # Its level was too high for `diverged` before its loss was infinite.
    assert 0 < overflowed["onset_step"] < overflowed["diverged_step"]
    for row in rows[:2]:
        probes = probe_steps_of(WORKLOAD, defaults(WORKLOAD, n_steps=row["param_n_steps"]))
        assert row["before_onset_step"] == probes[probes.index(row["onset_step"]) - 1]
    assert rows[0]["diverged_step"] is rows[2]["diverged_step"] is None
    assert rows[0]["eval_loss"] < rows[0]["loss_level"]
    assert (rows[2]["onset_step"], rows[2]["before_onset_step"]) == (0, None)


def test_rows_say_what_was_trained_and_how(trained: tuple[pa.Table, pa.Table]) -> None:
    trainings, curves = trained
    assert trainings.schema.equals(schemas_of(WORKLOAD)["trainings"])
    assert curves.schema.equals(curves_schema())
    row = trainings.to_pylist()[2]
    assert (row["stuck"], row["outcome_detail"]) == (True, "zero")
    assert (row["certificate"], row["certified"]) == ("negative_curvature", True)
    assert (row["sweep"], row["pack"], row["lane"], row["pack_size"], row["host"]) == ("s", "p", 2, 3, "here")
    assert row["level_zero"] == 1.0
    assert row["level_marginal"] is None
    recorded = CategoryPairsParameters.recorded(row)
    assert row["training_id"] == training_id("category_pairs", recorded, row["seed"])


def test_a_training_that_ended_by_itself_before_its_trial_was_pruned_is_pruned_too() -> None:
    """Otherwise a rate would have the pruned trials' quick trainings, and not their slow ones."""
    (quick,) = _tasks(SOLVES)
    step = probe_steps_of(WORKLOAD, quick.training.parameters)[-2]
    pack = Pack(WORKLOAD, [quick.training], prune_at=[step])
    pack.train_to_end()
    (row,) = ended_rows(
        WORKLOAD, [replace(quick, pruned_step=step)], pack, pack.result(), CONTEXT
    ).trainings.to_pylist()
    assert (row["outcome"], row["pruned_step"], row["stuck"]) == ("pruned", step, False)
    assert row["n_steps"] < step


class Counting(CategoryPairs):
    """Trainings that count the others of their pack at their end."""

    def final_metrics(self, lanes: Lanes[CategoryPairsParameters], state: State) -> dict[str, NDArray[np.float64]]:
        assert all(len(tensor) == len(lanes.trainings) for tensor in state.values())
        return {"seeds": np.array([float(each.seed) for each in lanes.trainings])}


@pytest.mark.slow
def test_what_is_measured_at_the_end_is_the_last_point_of_what_ended() -> None:
    tasks, workload = _tasks(*THREE), Counting()
    pack = Pack(workload, [task.training for task in tasks])
    pack.train_to_end()
    curves = ended_rows(workload, tasks, pack, pack.result(), CONTEXT).curves.to_pandas()
    found = curves[curves["metric"] == "seeds"]
    assert found["trial"].tolist() == [0, 2]
    assert found["value"].tolist() == [tasks[0].training.seed, tasks[2].training.seed]
    last = curves[curves["metric"] == "eval_loss"].groupby("trial")["step"].max()
    assert found["step"].tolist() == [last[0], last[2]]
