"""Large eager steps are computed one training after another, as plain PyTorch does."""

import numpy as np
import pytest
from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Batch, Lanes
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.process import training_settings
from tests.workloads.engine.any_module import AnyModule, AnyParameters, lanes_of


class Wide(AnyModule):
    def __init__(self, n_rows: int) -> None:
        super().__init__(lambda _: nn.Sequential(nn.Linear(33, 65), nn.Dropout(0.2), nn.ReLU(), nn.Linear(65, 7)))
        self._n_rows = n_rows

    def batch(self, lanes: Lanes[AnyParameters], step: int) -> Batch:
        return {"x": lanes.streams.normal("x", (self._n_rows, 33), step).to(lanes.dtype)}

    def eval_batch(self, lanes: Lanes[AnyParameters]) -> Batch:
        return self.batch(lanes, 0)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        answer: Tensor = module(batch["x"])
        return (1 + answer).square().mean()


SETTINGS = [AnyParameters(n_steps=4, optimizer=name, dtype="float32") for name in ("adamw", "lbfgs")]


@pytest.mark.parametrize("parameters", SETTINGS, ids=["adamw", "lbfgs"])
@pytest.mark.parametrize("n_rows", [4, 3001])
def test_a_training_ends_alike_to_the_last_bit_in_any_pack(n_rows: int, parameters: AnyParameters) -> None:
    trainings = lanes_of(*[parameters] * 3).trainings
    with training_settings():
        together, alone = (Pack(Wide(n_rows), each).train_to_end() for each in (trainings, trainings[1:2]))
    for metric, values in together.evidence.metrics.items():
        np.testing.assert_array_equal(values[1:2], alone.evidence.metrics[metric])
