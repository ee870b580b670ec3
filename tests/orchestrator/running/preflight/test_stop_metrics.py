"""`stop_when` is refused before the first step where its metric is not measured."""

import pytest

from attnsweep.orchestrator.running.preflight import Sample, check_stop_metrics
from attnsweep.search_spaces import Categorical, Sweep
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.errors import SpecError


def sample(stop_when: Dimension) -> Sample:
    space = {"stop_when": stop_when, "n_categories": 3, "n_positions": 4}
    sweep = Sweep(name="s", workload="category_pairs", space=space, sampler="random", trials=8)
    return Sample.of(sweep, CategoryPairs())


@pytest.mark.parametrize("stop_when", ["eval_los < 1", Categorical((None, "loss < 1", "eval_los < 1"))])
def test_an_unknown_metric_is_refused(stop_when: Dimension) -> None:
    with pytest.raises(SpecError, match=r"stop_when: got 'eval_los < 1', expected .*; did you mean eval_loss"):
        check_stop_metrics(sample(stop_when))


@pytest.mark.parametrize("stop_when", [None, "eval_loss < 1", Categorical((None, "loss < 1"))])
def test_a_known_one_is_not(stop_when: Dimension) -> None:
    check_stop_metrics(sample(stop_when))
