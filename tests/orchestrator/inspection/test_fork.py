"""Forks: planted committors are found, the training itself goes on as recorded, and bad input gets one sentence."""

from pathlib import Path

import pyarrow.compute as pc
import pytest

from attnsweep import Sweep
from attnsweep.orchestrator.inspection.fork import Source, fork
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.errors import UserError
from tests.orchestrator.commands import command
from tests.orchestrator.small_sweep import small_sweep
from tests.orchestrator.trained_sweep import edit_row, records, trained_sweep
from tests.refusals import refused

COIN_AT, P_HEADS = 5, 0.3
COIN = f"""
import torch
from torch import nn
import attnsweep as at

class Side(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.side = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.side.bias + 0 * self.side.weight[0]

def model() -> nn.Module:
    return Side()

def data(draw: at.Draw, step: int, decided_by: str = "coin") -> tuple[torch.Tensor, torch.Tensor]:
    # A step of SGD at the rate 0.5 takes the bias to the target; elsewhere it weighs nothing.
    heads = torch.where(draw.uniform(1) < {P_HEADS}, 1.0, -1.0).double()
    return torch.stack([heads, torch.full((1,), float(step == {COIN_AT} and decided_by == "coin")).double()]), heads

def loss(output: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    return (inputs[1] * (output - inputs[0]) ** 2).mean()

def side(module: nn.Module) -> torch.Tensor:
    return module.side.bias[0]

coin = at.problem(
    "coin", model=model, data=data, loss=loss, metrics={{"side": side}}, solved="side > 0", probe_steps=1,
    outcomes={{"tails": at.Outcome("the coin fell on tails", when="side <= 0")}},
    defaults={{"optimizer": "sgd", "learning_rate": 0.5, "n_steps": 9, "stop_when_solved": False}},
)

def sweep() -> at.Sweep:
    space = {{"decided_by": at.Categorical(("start", "coin"))}}
    return at.Sweep(name="coin", workload="coin.py:coin", space=space, sampler="grid", trials=2, replicates=8)
"""


@pytest.fixture(scope="module")
def coins(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    """A trial whose outcome the data of one step decide, as a coin would, and one decided where it starts."""
    folder = tmp_path_factory.mktemp("coins")
    (folder / "coin.py").write_text(COIN)
    return trained_sweep(folder / "s", load_sweep(str(folder / "coin.py")))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    """Attention on positions, whose loss is exact; adam and lbfgs."""
    return trained_sweep(tmp_path_factory.mktemp("pairs") / "s", small_sweep("pairs", trials=2, replicates=2))


def _name(coins: SweepDirectory, decided_by: str, replicate: int = 0) -> str:
    (row,) = records(coins, param_decided_by=decided_by, replicate=replicate)
    return f"{row['trial']}/{replicate}"


def test_a_planted_committor_is_found_before_the_coin_falls_and_the_training_knows_its_own(
    coins: SweepDirectory,
) -> None:
    for step in (0, COIN_AT):
        found = fork(coins, _name(coins, "coin"), step=step, n=400)
        assert not found.difference
        _, low, high = found.rate("solved").interval or (0, 0, 0)
        assert low < P_HEADS < high < 0.4
        assert found.trainings.num_rows == found.n == sum(rate.k for rate in found.shares.values()) == 400
        assert set(found.curves["replicate"].to_pylist()) == set(range(1, 401))


def test_once_it_has_fallen_or_where_the_start_decides_nothing_is_open(coins: SweepDirectory) -> None:
    for decided_by, replicate, step in (("coin", 0, COIN_AT + 1), ("start", 0, 0), ("start", 1, COIN_AT)):
        found = fork(coins, _name(coins, decided_by, replicate), step=step, n=30)
        assert found.rate(found.origin["outcome"]).k == 30


def test_kicked_rows_have_the_escape_that_the_law_predicts_for_their_weights(tmp_path: Path) -> None:
    spec = small_sweep("zero", trials=1, replicates=1)
    values = {"optimizer": "sgd", "init_sigma": 1e-3, "learning_rate": 0.05, "n_steps": 60}
    zero = trained_sweep(tmp_path / "s", spec.but(space={**spec.space, **values}))
    ((own,),) = (records(zero),)
    predicted = {
        (step, size): fork(zero, "0/0", step=step, redraw="kick", n=6, size=size).trainings["predicted_escape_step"]
        for step in (0, 8, own["predicted_escape_step"] + 5)
        for size in (1e-9, 0.5)
    }
    of_step = {place: set(steps.to_pylist()) for place, steps in predicted.items()}
    # A kick of nothing leaves the prediction of the start, wherever it is made; beyond the escape there is none.
    assert [of_step[step, 1e-9] for step in (0, 8)] == [{own["predicted_escape_step"]}] * 2
    assert [len(of_step[step, 0.5]) > 1 for step in (0, 8)] == [True, True]
    assert of_step[own["predicted_escape_step"] + 5, 1e-9] == {None}


def test_the_training_itself_is_among_its_continuations(coins: SweepDirectory) -> None:
    source = Source(coins, _name(coins, "coin"), "data", 0.01)
    rows = source.continued(source.state(4), 4, range(3))
    own, recorded = rows.trainings.to_pylist()[0], records(coins, param_decided_by="coin", replicate=0)[0]
    for name in ("outcome", "eval_loss", "final_loss", "grad_norm", "n_steps", "onset_step"):
        assert own[name] == recorded[name]
    curves = Ledger(coins.place).curves(filter=pc.field("training_id") == recorded["training_id"])
    mine, again = (
        {(each["step"], each["metric"]): each["value"] for each in table.to_pylist()}
        for table in (curves, rows.curves.filter(pc.field("replicate") == 0))
    )
    assert again == mine


def test_a_row_that_ends_otherwise_is_said(coins: SweepDirectory, tmp_path: Path) -> None:
    folder = tmp_path / "coin.py"
    folder.write_text(COIN)
    edited = trained_sweep(tmp_path / "s", load_sweep(str(folder)).but(trials=1, replicates=1))
    edit_row(edited, "trainings", 0, eval_loss=1.0)
    ended = command("fork", edited.place, "0/0", "--at", 3, "--n", 2)
    assert ended.code == 1
    assert "eval_loss" in ended.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["0/0", "--at", "8"], "--at"),
        (["0/0", "--at", "3"], "--redraw"),
        (
            ["0/0", "--at", "3", "--redraw", "noise"],
            "0/0 still draws after this step: it draws no more dropout masks; write --redraw data, or --redraw kick",
        ),
        (["0/0", "--at", "3", "--redraw", "kick", "--size", "0"], "--size"),
        (["0/0", "--at", "3", "--n", "0"], "--n"),
        (["9/9", "--at", "3"], "TRAINING_ID"),
    ],
)
def test_bad_input_gets_one_sentence(arguments: list[str], said: str, pairs: SweepDirectory) -> None:
    ended = command("fork", pairs.place, *arguments)
    assert (ended.code, said in ended.err) == (2, True)


def test_a_failed_training_and_one_that_searches_along_lines_are_refused(tmp_path: Path) -> None:
    spec: Sweep = small_sweep("lines", trials=1, replicates=2)
    lines = trained_sweep(tmp_path / "s", spec.but(space={**spec.space, "optimizer": "lbfgs"}))
    with refused("TRAINING_ID", UserError):
        fork(lines, "0/0", step=1)
    edit_row(lines, "trainings", 1, outcome="failed")
    with refused("TRAINING_ID", UserError):
        fork(lines, "0/1", step=1)
