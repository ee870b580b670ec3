"""Promotion tells a zero of single precision from a zero of the loss, and from a training that ran out of steps."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.diagnostics.promotion import certify_by_promotion
from attnsweep.workloads.engine.contract import Batch, Certificate, Evidence, Lanes, Training, Verdicts, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.parameters import TrainingParameters, Value, parameter
from attnsweep.workloads.testing import defaults


@dataclass(frozen=True, kw_only=True)
class HillParameters(TrainingParameters):
    tilt: float = parameter(0.0, "slope at x = 1")
    curvature: float = parameter(1.0, "how the hill bends down")
    start: float = parameter(1.0, "the first x")


class Hill(nn.Module):
    tilt: Tensor
    curvature: Tensor

    def __init__(self, parameters: HillParameters) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor([parameters.start], dtype=torch.float64))
        for name in ("tilt", "curvature"):
            self.register_buffer(name, torch.tensor(getattr(parameters, name), dtype=torch.float64))


class Hills(Workload[HillParameters]):
    """Loss 1 at the top x = 1 of a hill, from which descent leads to 0; where `curvature` is negative, of a bowl."""

    name, parameters, summary, level_names = "hills", HillParameters, "a hill", ("zero",)

    def build(self, parameters: HillParameters) -> nn.Module:
        return Hill(parameters)

    def initial(self, module: nn.Module, lanes: Lanes[HillParameters]) -> State:  # noqa: ARG002
        return {"x": lanes.tensor("start").unsqueeze(1)}

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:  # noqa: ARG002
        assert isinstance(module, Hill)
        away = module.x[0] - 1
        return 1 - torch.tanh(module.tilt * away + module.curvature * away.square())

    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:  # noqa: ARG002
        assert isinstance(module, Hill)
        return {"zero": torch.ones_like(module.tilt), "solved": torch.full_like(module.tilt, 0.5)}

    def judge(self, parameters: HillParameters, evidence: Evidence) -> Verdicts:  # noqa: ARG002
        return Verdicts.first_of({"solved": evidence.metrics["eval_loss"] < 0.5}, "degenerate_zero")


def _certificates(**values: float | str) -> list[Certificate | None]:
    given = {"learning_rate": 0.25, "n_steps": 60, "dtype": "float32"} | values
    pack = Pack(Hills(), [Training(HillParameters.resolve(given), seed) for seed in range(2)])
    pack.train_to_end()
    assert (pack.result().last("eval_loss") > 0.9).all(), "it is stuck"
    return certify_by_promotion(Hills(), *pack.final_state(np.arange(2)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "agrees"),
    [
        # x = 1 in float32 does not see steps of 1e-10; in float64 they grow by half a step.
        ({"tilt": 1e-9}, False),
        # The minimum of a bowl.
        ({"curvature": -1.0, "start": 1.01}, True),
        # On its way: more steps free it in float32 too.
        ({"start": 1.001, "n_steps": 14}, True),
        # float32 rounds the start up and holds it there; float64 goes on from there, but lacks steps from its own.
        ({"start": 1 + 7e-8, "learning_rate": 0.2, "n_steps": 47}, False),
    ],
    ids=["arithmetic", "loss", "steps", "arithmetic, from its end"],
)
def test_promotion_frees_what_only_rounding_holds(values: dict[str, float], agrees: bool) -> None:
    assert _certificates(**values) == [Certificate("promotion", agrees)] * 2


def test_a_training_goes_on_from_given_parameters_in_another_type() -> None:
    start = {"x": torch.tensor([[1.5], [2.0]], dtype=torch.float32)}
    trainings = [Training(HillParameters.resolve({"n_steps": 1, "learning_rate": 1e-9}), seed) for seed in range(2)]
    pack = Pack(Hills(), trainings, start=start)
    pack.train_to_end()
    _, ended = pack.final_state(np.arange(2))
    assert ended["x"].dtype == torch.float64
    torch.testing.assert_close(ended["x"], start["x"].double(), rtol=0, atol=1e-8)


@pytest.mark.scale
def test_the_zeros_of_solution_3_at_a_hundredth_are_of_single_precision() -> None:
    values: dict[str, Value] = {
        "n_categories": 10,
        "n_positions": 20,
        "batch_size": 256,
        "n_steps": 250,
        "variant": "solution_3",
    }
    values |= {"expectation": "fixed_sample", "optimizer": "lbfgs", "learning_rate": 1.0, "init_sigma": 0.01}
    workload = CategoryPairs()
    pack = Pack(workload, [Training(defaults(workload, **values, dtype="float32"), seed) for seed in range(6)])
    pack.train_to_end()
    zeros = np.full(6, "degenerate_zero")
    found = workload.certify(*pack.final_state(np.arange(6)), zeros, zeros)
    assert found == [Certificate("promotion", agrees=False)] * 6
