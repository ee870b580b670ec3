"""BLEU of trainings' translations: the published definition, stored in `curves` at a training's last step."""

import math
from collections import Counter

import numpy as np
import pytest

from attnsweep.orchestrator.training.messages import PackOrder, Progress, RunContext, Trained
from attnsweep.orchestrator.training.rows import bleu, score_written
from attnsweep.orchestrator.training.tasks import Task
from attnsweep.orchestrator.training.trainer import Trainer
from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.engine.contract import Lanes, Training, Workload, Written
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.testing import defaults

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


def test_what_says_nothing_scores_nothing() -> None:
    assert bleu(Written("test", ("", ""), REFERENCES)) == 0
    assert math.isnan(bleu(Written("test", (), ())))


def test_as_many_hypotheses_as_references() -> None:
    with pytest.raises(ValueError, match="Written test: got 1 hypotheses and 2 references, expected one reference per"):
        Written("test", ("one",), REFERENCES)


def _tasks(workload: Workload[CategoryPairsParameters]) -> list[Task]:
    """A training that solves and ends early, one that overflows, one that stays at the zero."""
    settings = [
        {"init_sigma": 0.05, "learning_rate": 0.05},
        {"init_sigma": 2.0, "learning_rate": 5.0},
        {"init_sigma": 1e-4, "learning_rate": 1e-4},
    ]
    trainings = [Training(defaults(workload, n_steps=300, **each), seed) for seed, each in enumerate(settings)]
    return [Task(trial, 0, training) for trial, training in enumerate(trainings)]


def _train(workload: Workload[CategoryPairsParameters], tasks: list[Task]) -> Trained:
    worker = Trainer(workload, RunContext("s"), "cpu")
    report = worker.start(PackOrder("p", tasks))
    while isinstance(report, Progress):
        report = worker.proceed()
    assert isinstance(report, Trained), report
    return report


@pytest.mark.slow
def test_a_trainer_scores_what_its_trainings_wrote_where_they_ended() -> None:
    workload = Writers()
    tasks = _tasks(workload)
    curves = _train(workload, tasks).rows.curves.to_pandas()
    scores = curves[curves["metric"].str.startswith("bleu_")]
    assert scores["metric"].tolist() == ["bleu_test"] * 2
    assert scores["trial"].tolist() == [0, 2]
    assert scores["value"].tolist() == pytest.approx([100, _papineni(_cut(2), REFERENCES)])
    last = curves[curves["metric"] == "eval_loss"].groupby("trial")["step"].max()
    assert scores["step"].tolist() == [last[0], last[2]]
    plain = _train(CategoryPairs(), tasks).rows.curves.to_pandas()
    assert len(plain) == len(curves) - 2
    assert not plain["metric"].str.startswith("bleu_").any()


def test_nothing_is_written_where_all_diverged() -> None:
    workload = Writers()
    pack = Pack(workload, [_tasks(workload)[1].training])
    result = pack.train_to_end()
    assert (result.diverged_step >= 0).all()
    assert score_written(workload, pack, result) == {}


@pytest.mark.slow
def test_a_score_is_of_its_own_training_whatever_the_pack() -> None:
    workload = Writers()
    tasks = _tasks(workload)
    whole = _train(workload, tasks).rows.curves.to_pandas().query("metric == 'bleu_test'")
    for trial in (0, 2):
        alone = _train(workload, [tasks[trial]]).rows.curves.to_pandas().query("metric == 'bleu_test'")
        np.testing.assert_array_equal(alone["value"], whole[whole["trial"] == trial]["value"])
