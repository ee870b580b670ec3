"""A replay ends exactly as recorded, and reports any difference. Real trainings in real packs."""

import math
import shutil
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from attnsweep.orchestrator.inspection.deviation import TOLERANCES, Deviation, deviation, last_line
from attnsweep.orchestrator.inspection.kept_weights import ended_lanes
from attnsweep.orchestrator.inspection.recorded import find_training, recorded_rows, to_replay
from attnsweep.orchestrator.inspection.replay import replay
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Sweep
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.errors import UserError
from tests.orchestrator.commands import command
from tests.orchestrator.trained_sweep import FRAGILE, edit_row, records, trained_sweep
from tests.refusals import refused


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    file = tmp_path_factory.mktemp("user") / "fragile.py"
    file.write_text(FRAGILE)
    return load_sweep(str(file)).but(seed=121)


@pytest.fixture(scope="module")
def whole(spec: Sweep, tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    """Trainings that solved, stayed at the zero, diverged and failed, in packs of up to eight."""
    return trained_sweep(tmp_path_factory.mktemp("replay") / "whole", spec)


@pytest.fixture
def sweep(whole: SweepDirectory, tmp_path: Path) -> SweepDirectory:
    """A copy to be changed."""
    shutil.copytree(str(whole.place), tmp_path / "sweep")
    return SweepDirectory.open(tmp_path / "sweep")


def _replayed(directory: SweepDirectory, **wanted: Any) -> Deviation:
    return replay(directory, records(directory, **wanted)[0]["training_id"]).deviation


def _compared(found: Deviation) -> dict[str, tuple[int, int]]:
    """The number of values measured both times, and of those measured only once, by name."""
    return {each["kind"]: (each["n"], each["n_once"]) for each in found.differences.to_pylist()}


@pytest.mark.slow
@pytest.mark.parametrize("outcome", ["solved", "degenerate_zero", "plateau", "diverged"])
def test_a_replay_is_equal_to_the_bit(outcome: str, whole: SweepDirectory) -> None:
    row = max(records(whole, outcome=outcome), key=itemgetter("pack_size"))
    found = replay(whole, row["training_id"])
    assert found.notes == ()
    assert row["pack_size"] > 1
    assert found.name == f"{row['trial']}/{row['replicate']}"
    assert found.deviation.agrees
    assert found.deviation.absolute == found.deviation.relative == found.deviation.of_losses == 0
    ending = itemgetter("outcome", "outcome_detail", "n_steps", "onset_step", "final_loss", "eval_loss", "grad_norm")
    assert ending(found.deviation.replayed) == ending(found.deviation.recorded)
    compared = _compared(found.deviation)
    n_points = recorded_rows(Ledger(whole.place), [row["training_id"]]).curves.num_rows
    assert compared["curves"] == (n_points, 0)
    assert n_points > 20
    assert compared["levels"][0] > 1
    assert compared["eval_loss"] == (0 if row["eval_loss"] is None else 1, 0)
    assert compared["heads"] == (0, 0)


@pytest.mark.scale
@pytest.mark.slow
def test_heads_are_compared_too(tmp_path: Path) -> None:
    small = {"n_sentences": 400, "batch_size": 100, "n_heads": 2, "d_model": 4, "d_ffn": 4, "n_probes": 2, "n_steps": 6}
    spec = Sweep(name="t", workload="translation", space=small, sampler="random", trials=1, replicates=1)
    directory = trained_sweep(tmp_path / "sweep", spec)
    found, heads = replay(directory, "0/0").deviation, Ledger(directory.place).heads()
    assert (found.agrees, found.absolute) == (True, 0)
    n_scores = sum(heads.num_rows - heads[name].null_count for name in heads.column_names if name.startswith("score_"))
    assert _compared(found)["heads"] == (n_scores, 0)
    assert n_scores > 20


@pytest.mark.slow
def test_trainings_are_trained_again_in_the_order_asked_for(whole: SweepDirectory) -> None:
    rows = list(reversed(records(whole, trial=3)))
    lanes, state = ended_lanes(whole, [row["training_id"] for row in rows])
    assert [training.seed for training in lanes.trainings] == [row["seed"] for row in rows]
    for lane, row in enumerate(rows):
        _, alone = ended_lanes(whole, [row["training_id"]])
        assert all(torch.equal(alone[name][0], value[lane]) for name, value in state.items())
    with refused("TRAINING_ID", UserError):
        ended_lanes(whole, ["x"])


FAILED = {"outcome": "failed", "final_loss": None, "eval_loss": None}
TINY = {"eval_loss": 1e-15, "final_loss": 0.0, "loss_level": 1e-3}


@pytest.mark.parametrize(
    ("recorded", "replayed", "disagrees"),
    [
        ({}, {"outcome": "runaway"}, ["outcome"]),
        ({}, {"outcome_detail": "elsewhere"}, ["outcome_detail"]),
        ({}, {"n_steps": 11}, ["n_steps"]),
        ({"eval_loss": 1.0}, {"eval_loss": 1.0 + 1e-8}, []),
        ({"eval_loss": None}, {}, ["eval_loss"]),
        # Losses of trainings in float32 may differ more, and below the solved level they are noise.
        ({"eval_loss": 1.0}, {"eval_loss": 1.0 - 2 * TOLERANCES["float64"]}, ["eval_loss"]),
        ({"eval_loss": 1.0, "param_dtype": "float32"}, {"eval_loss": 1.0 - 0.5 * TOLERANCES["float32"]}, []),
        (TINY, TINY | {"eval_loss": 3e-15}, []),
        (TINY, TINY | {"eval_loss": 3e-9}, ["eval_loss"]),
        # Of errors only the kinds are compared.
        (FAILED | {"error": "OSError: a"}, FAILED | {"error": "... line 1\nOSError: b"}, []),
        (FAILED | {"error": "OSError: a"}, FAILED | {"error": "MemoryError: a"}, ["error"]),
        (FAILED | {"error": "OSError: a"}, {}, ["outcome", "final_loss", "eval_loss", "error"]),
    ],
)
def test_only_the_same_end_agrees(
    recorded: dict[str, Any], replayed: dict[str, Any], disagrees: list[str], whole: SweepDirectory
) -> None:
    rows = recorded_rows(Ledger(whole.place), [records(whole, outcome="plateau")[0]["training_id"]])
    (row,) = rows.trainings.to_pylist()
    one, other = (
        replace(rows, trainings=pa.Table.from_pylist([row | changed], rows.trainings.schema))
        for changed in (recorded, replayed)
    )
    found = deviation(one, other)
    assert (found.disagreements, found.agrees) == (disagrees, not disagrees)
    if "eval_loss" in recorded and None not in (a := found.recorded["eval_loss"], b := found.replayed["eval_loss"]):
        assert found.of_losses >= abs(a - b) / max(a, b, found.recorded["loss_level"])
        assert _compared(found)["eval_loss"] == (1, 0)
    elif "eval_loss" in disagrees:
        assert math.isinf(found.of_losses)
        assert _compared(found)["eval_loss"] == (0, 1)


def test_a_training_that_failed_raises_again(whole: SweepDirectory) -> None:
    found = _replayed(whole, outcome="failed")
    assert found.agrees
    assert found.replayed["outcome"] == "failed"
    assert last_line(found.replayed["error"]) == last_line(found.recorded["error"]) == "in two lines"
    assert "ZeroDivisionError: planted" in found.replayed["error"]


def test_a_training_is_found_by_its_place_or_the_beginning_of_its_id(whole: SweepDirectory) -> None:
    ledger = Ledger(whole.place)
    row = records(whole, trial=3, replicate=2)[0]
    for name in ("3/2", row["training_id"], row["training_id"][:10]):
        assert find_training(ledger, name) == row["training_id"]
    typo = row["training_id"][:-2] + "zz"
    with refused("TRAINING_ID", UserError):
        find_training(ledger, typo)
    with refused("TRAINING_ID", UserError):
        find_training(ledger, "3/9")
    with refused("TRAINING_ID", UserError):
        find_training(ledger, "")
    firsts = [each["training_id"][0] for each in records(whole)]
    common = max(firsts, key=firsts.count)
    with refused("TRAINING_ID", UserError):
        find_training(ledger, common)


def _made_up(n: int) -> pa.Table:
    outcomes = ["failed" if i % 10 == 0 else "solved" for i in range(n)]
    return pa.table({"training_id": [f"{i:05x}" for i in range(n)], "outcome": pa.array(outcomes).dictionary_encode()})


def test_a_hundredth_is_chosen_the_same_whenever_asked() -> None:
    rows = _made_up(3000)
    chosen = to_replay(rows, 7)
    assert len(chosen) == len(set(chosen)) == 27
    assert to_replay(rows.take(list(reversed(range(3000)))), 7) == chosen
    assert not {f"{i:05x}" for i in range(0, 3000, 10)} & set(chosen)
    assert len(set(to_replay(rows, 8)) & set(chosen)) < 5
    assert 500 < sum(int(each, 16) for each in chosen) / 27 < 2500


@pytest.mark.parametrize(("n", "n_chosen"), [(0, 0), (2, 1), (3, 2), (101, 2), (226, 3), (150_000, 1_000)])
def test_two_are_chosen_at_least_and_a_thousand_at_most(n: int, n_chosen: int) -> None:
    assert len(set(to_replay(_made_up(n), 0))) == n_chosen


def test_the_command_says_where_it_does_not_agree(sweep: SweepDirectory) -> None:
    row = records(sweep, outcome="plateau")[0]
    edit_row(sweep, "trainings", row["place"], eval_loss=7.0, outcome="marginal")
    ended = command("replay", sweep.place, row["training_id"], "--json")
    told = ended.json
    assert (ended.code, told["agrees"], told["disagrees_in"]) == (1, False, ["outcome", "eval_loss"])
    assert (told["recorded"]["eval_loss"], told["replayed"]["outcome"]) == (7.0, "plateau")
    assert told["absolute"] == pytest.approx(abs(7.0 - row["eval_loss"]))
    assert "outcome, eval_loss" in ended.err.splitlines()[-1]
