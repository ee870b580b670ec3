"""The warning of samplers that cannot keep up with the trainers."""

import pytest

from attnsweep.orchestrator.running.preflight import sampler_warning
from attnsweep.search_spaces.sweep import Sampler
from tests.orchestrator.small_sweep import small_sweep
from tests.present import present


@pytest.mark.parametrize(
    ("sampler", "trials", "is_warned"),
    [("tpe", 20_000, False), ("tpe", 62_500, True), ("boundary", 1_000, False), ("boundary", 2_000, True)],
)
def test_a_sampler_that_learns_is_slow_with_many_trials(sampler: Sampler, trials: int, *, is_warned: bool) -> None:
    assert (sampler_warning(small_sweep("s", sampler=sampler, trials=trials)) is not None) == is_warned


def test_the_warning_says_how_long_and_what_else_there_is() -> None:
    said = present(sampler_warning(small_sweep("s", sampler="tpe", trials=62_500)))
    assert "62,500 trials take it some 1.1 hours" in said
    assert said.endswith("sampler='qmc' or 'random' takes none")
    for sampler in ("random", "qmc", "grid"):
        assert sampler_warning(small_sweep("s", sampler=sampler, trials=10**9)) is None
