"""From a trained pack to rows: the properties that readers of the ledger rely on.

BLEU of trainings' translations: the published definition, stored in `curves` at a training's last step.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from attnsweep.orchestrator.ledger.schema import curves_schema, schemas_of
from attnsweep.orchestrator.training.messages import PackOrder, Progress, RunContext, Trained
from attnsweep.orchestrator.training.rows import (
    PackContext,
    bleu,
    curve_rows,
    ended_rows,
    failed_rows,
    head_rows,
    trained_rows,
)
from attnsweep.orchestrator.training.tasks import Task, training_id
from attnsweep.orchestrator.training.trainer import Trainer
from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.engine.contract import Certificate, Lanes, Training, Workload, Written
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


@pytest.mark.slow
def test_rows_have_the_schema(trained: tuple[pa.Table, pa.Table]) -> None:
    trainings, curves = trained
    assert trainings.schema.equals(schemas_of(WORKLOAD)["trainings"])
    assert curves.schema.equals(curves_schema())


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
    row = trained[0].to_pylist()[2]
    assert (row["stuck"], row["outcome_detail"]) == (True, "zero")
    assert (row["certificate"], row["certified"]) == ("negative_curvature", True)
    assert (row["sweep"], row["pack"], row["lane"], row["pack_size"], row["host"]) == ("s", "p", 2, 3, "here")
    assert row["level_zero"] == 1.0
    assert row["level_marginal"] is None
    recorded = CategoryPairsParameters.recorded(row)
    assert row["training_id"] == training_id("category_pairs", recorded, row["seed"])


def test_curves_hold_each_finite_value_once(trained: tuple[pa.Table, pa.Table]) -> None:
    curves = trained[1].to_pandas()
    assert not curves.duplicated(["training_id", "step", "metric"]).any()
    assert curves["value"].notna().all()
    assert curves[curves["trial"] == 2]["step"].max() == 300
    assert curves[curves["trial"] == 1]["step"].max() < 300


def test_a_failed_training_keeps_its_parameters_and_its_traceback() -> None:
    tasks = _tasks({"init_sigma": None})
    row = failed_rows(WORKLOAD, tasks, "Traceback: planted", CONTEXT).trainings.to_pylist()[0]
    assert (row["outcome"], row["stuck"], row["error"]) == ("failed", False, "Traceback: planted")
    assert row["param_init_sigma"] is None
    assert row["eval_loss"] is row["onset_step"] is None


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


REFERENCES = ("the cat sat on the mat .", "there is no dog in here .")


class Writers(CategoryPairs):
    """Trainings that write the reference without its last words; their seeds say how many."""

    def write(self, lanes: Lanes[CategoryPairsParameters], state: State) -> list[tuple[Written, ...]]:
        assert all(len(tensor) == len(lanes.trainings) for tensor in state.values())
        return [(Written("test", _cut(each.seed), REFERENCES), Written("none", (), ())) for each in lanes.trainings]


def _cut(n_words: int) -> tuple[str, ...]:
    return tuple(" ".join(each.split()[: 7 - n_words]) for each in REFERENCES)


def _papineni(hypotheses: tuple[str, ...], references: tuple[str, ...]) -> float:
    """BLEU without smoothing, for texts with a match of every order of n-grams."""
    lines = [(first.split(), second.split()) for first, second in zip(hypotheses, references, strict=True)]
    precisions = []
    for order in range(1, 5):
        grams = [[Counter(zip(*(side[i:] for i in range(order)), strict=False)) for side in line] for line in lines]
        matches = sum((first & second).total() for first, second in grams)
        precisions.append(matches / sum(first.total() for first, _ in grams))
    written, asked = (sum(len(line[side]) for line in lines) for side in range(2))
    return 100 * min(1.0, math.exp(1 - asked / written)) * math.prod(precisions) ** 0.25


@pytest.mark.parametrize(
    "hypotheses",
    [
        REFERENCES,
        _cut(2),
        ("the cat sat on a mat .", "there is no dog in here . ."),
        ("The cat sat on the mat .", "there is no dog in here ."),
    ],
)
def test_the_score_is_the_formula_on_the_tokens_as_they_are(hypotheses: tuple[str, ...]) -> None:
    assert bleu(Written("test", hypotheses, REFERENCES)) == pytest.approx(_papineni(hypotheses, REFERENCES))


def _train(workload: Workload[CategoryPairsParameters], tasks: list[Task]) -> Trained:
    worker = Trainer(workload, RunContext("s"), "cpu")
    report = worker.start(PackOrder("p", tasks))
    while isinstance(report, Progress):
        report = worker.proceed()
    assert isinstance(report, Trained), report
    return report


@pytest.mark.slow
def test_a_trainer_scores_what_its_trainings_wrote_where_they_ended() -> None:
    tasks = _tasks(*THREE)
    curves = _train(Writers(), tasks).rows.curves.to_pandas()
    scores = curves[curves["metric"].str.startswith("bleu_")]
    assert scores["metric"].tolist() == ["bleu_test"] * 2
    assert scores["trial"].tolist() == [0, 2]
    assert scores["value"].tolist() == pytest.approx([100, _papineni(_cut(2), REFERENCES)])
    last = curves[curves["metric"] == "eval_loss"].groupby("trial")["step"].max()
    assert scores["step"].tolist() == [last[0], last[2]]
    plain = _train(CategoryPairs(), tasks).rows.curves.to_pandas()
    assert len(plain) == len(curves) - 2
    assert not plain["metric"].str.startswith("bleu_").any()


@pytest.mark.slow
def test_a_score_is_of_its_own_training_whatever_the_pack() -> None:
    tasks = _tasks(*THREE)
    whole = _train(Writers(), tasks).rows.curves.to_pandas().query("metric == 'bleu_test'")
    for trial in (0, 2):
        alone = _train(Writers(), [tasks[trial]]).rows.curves.to_pandas().query("metric == 'bleu_test'")
        np.testing.assert_array_equal(alone["value"], whole[whole["trial"] == trial]["value"])
