"""What a sweep says of itself before its first training."""

import pytest

from attnsweep.orchestrator.running.outlook import Outlook
from attnsweep.orchestrator.running.preflight import Sample
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces.sweep import Sampler
from attnsweep.workloads.category_pairs import CategoryPairs
from tests.orchestrator.small_sweep import small_sweep
from tests.present import present


@pytest.mark.parametrize(
    ("sampler", "plan", "is_warned"),
    [
        # 3 rounds of 1,000 steps of 0.01 s and 0.001 s for each of 16 trainings.
        ("random", "96 trainings in 6 packs of about 16 (n_heads x n_pairs), about 78 s on 2 trainers", False),
        # 6 packs of the 10 start-up trials, then 3 for each group of 3, and 2 for the last 2.
        ("tpe", "96 trainings in 20 packs of about 5 (n_heads x n_pairs), about 3 min on 2 trainers", True),
    ],
)
def test_the_plan_counts_packs_and_seconds(sampler: Sampler, plan: str, *, is_warned: bool) -> None:
    spec = small_sweep("s", sampler=sampler, trials=24, replicates=4)
    outlook = Outlook(spec, {"n_heads": 3, "n_pairs": 2}, n_steps=1000, step_seconds=(0.01, 0.001))
    first, *warnings = outlook.lines(2, "eager")
    assert first == f"plan: {plan}"
    assert [line.startswith("warning: n_heads x n_pairs split") for line in warnings] == [True] * is_warned


@pytest.mark.parametrize(
    ("trials", "packs"),
    [(24, "96 trainings in 2 packs of about 48 (n"), (40, "160 trainings in packs of 64 or more (n")],
)
def test_a_plan_leaves_open_only_the_size_of_packs_that_may_grow(trials: int, packs: str) -> None:
    outlook = Outlook(small_sweep("s", sampler="random", trials=trials, replicates=4), {"n": 2}, 1000, (0.01, 0.001))
    assert outlook.lines(1, "compiled")[0].startswith(f"plan: {packs}")


def test_steps_are_timed_on_this_machine() -> None:
    sample = Sample.of(small_sweep("s"), CategoryPairs())
    base, each = present(Outlook.of(sample, Resources(local=True, device="cpu")).step_seconds)
    assert 0 < base + 4 * each < 10
    assert Outlook.of(sample, Resources(device="cuda")).step_seconds is None
