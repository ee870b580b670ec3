"""The trainings of a pack, and some of them."""

import torch

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.testing import defaults


def test_some_lanes_are_as_if_there_were_no_others() -> None:
    trainings = [Training(defaults(CategoryPairs(), init_sigma=0.1 * (seed + 1)), seed) for seed in range(5)]
    lanes, device = Lanes(trainings, torch.device("cpu")), torch.device("cpu")
    lanes.tensor("init_sigma")
    some, alone = lanes.select(torch.tensor([3, 1, 1])), Lanes([trainings[each] for each in (3, 1, 1)], device)
    assert some.trainings == alone.trainings
    for name in ("init_sigma", "learning_rate"):
        assert torch.equal(some.tensor(name), alone.tensor(name))
    assert torch.equal(some.streams.uniform("x", (4,)), alone.streams.uniform("x", (4,)))
    assert torch.equal(lanes.streams.seeds, torch.arange(5))
