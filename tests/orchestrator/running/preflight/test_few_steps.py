"""The warning of a run whose trainings end before they can leave their start."""

import pytest
from torch import nn

from attnsweep.orchestrator.running.preflight import Sample, few_steps_warning
from attnsweep.search_spaces import Categorical, Conditional, Float, Sweep
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters

WORKLOAD = CategoryPairs()


class Fragile(CategoryPairs):
    """A workload whose own code raises."""

    def build(self, parameters: CategoryPairsParameters) -> nn.Module:
        raise SystemExit(f"planted for {parameters.variant}")


def said(workload: CategoryPairs = WORKLOAD, trials: int = 100, **space: Dimension) -> str:
    small: dict[str, Dimension] = {
        "n_categories": 4,
        "n_positions": 5,
        "init_sigma": 1e-3,
        "learning_rate": Float(0.05, 0.1),
        "n_steps": 2000,
    }
    spec = Sweep(name="w", workload="category_pairs", space={**small, **space}, sampler="random", trials=trials)
    return few_steps_warning(Sample.of(spec, workload), seconds=60.0) or ""


@pytest.mark.slow
def test_one_line_says_how_many_trainings_end_too_early() -> None:
    (line,) = said(n_steps=8).splitlines()
    assert line.startswith("warning: n_steps ends 64 of 64 trainings")
    assert said(trials=3, n_steps=8).startswith("warning: n_steps ends 3 of 3 trainings")
    half = said(learning_rate=Categorical((1e-5, 0.1)))
    assert 16 < int(half.split()[3]) < 48


def test_nothing_is_said_where_n_steps_suffice_or_no_law_is_known() -> None:
    assert said() == ""
    assert said(optimizer="adam", n_steps=2) == ""
    assert said(init_sigma=None, n_steps=2) == ""
    mixed = said(
        optimizer=Categorical(("sgd", "adam")),
        momentum=Conditional(on="optimizer", among=("sgd",), then=0.0),
        n_steps=2,
    )
    assert "trainings, drawn" in mixed
    assert "of 64" not in mixed


def test_a_workload_that_raises_is_left_to_its_rows() -> None:
    assert said(Fragile(), n_steps=8) == ""
