"""The data of the page's script: the ledger's numbers, packed; and which trainings it shows in full."""

import base64
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.report import explorer
from attnsweep.orchestrator.report.explorer import Explorer, read_explorer
from attnsweep.orchestrator.report.facts import ReferenceLevel
from attnsweep.orchestrator.report.samples import PER_ENDING, thinned
from attnsweep.orchestrator.report.templating import JsonColumn, coded, counts, measures, script_json
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Categorical
from tests.orchestrator.head_rows import head_rows, sweep_with_heads
from tests.orchestrator.small_sweep import STEPS, commit, open_writer, small_sweep, sweep_on_disk, trial_rows
from tests.present import present


def _unpacked(column: JsonColumn) -> list[float]:
    return list(np.frombuffer(base64.b64decode(column["data"]), f"<{column['type']}").tolist())


def _numbers(*values: float) -> Any:
    return np.array(values, dtype=np.float64)


def test_columns_take_the_smallest_type_that_keeps_their_numbers() -> None:
    for values, kind in ((([0, 255]), "u1"), ([256], "u2"), ([2**16], "u4"), ([], "u1")):
        column = counts(np.array(values, dtype=np.int64))
        assert (column["type"], _unpacked(column)) == (kind, values)
    for numbers, kind in (([0.1, 1e-12, 1e30], "f4"), ([1e300], "f8"), ([1e-40, 1.5], "f8"), ([2**24 + 1], "f8")):
        column = measures(_numbers(*numbers))
        assert column["type"] == kind
        assert [f"{each:.6g}" for each in _unpacked(column)] == [f"{each:.6g}" for each in numbers]
    assert np.isnan(_unpacked(measures(_numbers(np.nan, 1.0)))[0])


def test_choices_stand_in_the_order_of_the_space_and_true_is_not_one() -> None:
    values, places = coded([True, 1, None, "a", 1], ["a", "b", None])
    assert values == ["a", None, True, 1]
    assert values[2] is True
    assert places.tolist() == [2, 3, 1, 0, 3]


def test_the_data_cannot_end_its_element() -> None:
    text = "</script><!--<script>&amp;\u2028\ud800"
    written = str(script_json({"x": text}))
    assert not set("<>&") & set(written)
    assert written.isascii()
    assert json.loads(written) == {"x": text}


def test_a_long_curve_keeps_its_ends() -> None:
    probes = [(step, float(step)) for step in range(1000)]
    kept = thinned(probes)
    assert len(kept) == 64
    assert (kept[0], kept[-1]) == (probes[0], probes[-1])
    assert thinned(probes[:3]) == probes[:3]


def _read(path: Path, spec: Any, *trials: Any) -> Explorer:
    # One file for all: many small ones take long.
    rows = [row for trial in trials for row in trial]
    with Ledger(sweep_on_disk(path, spec, rows).place).reading() as connection:
        return present(read_explorer(connection, spec, None, None))


def test_each_trial_and_training_is_there_once(tmp_path: Path) -> None:
    spec = small_sweep("points", trials=3)
    spec = spec.but(space={**spec.space, "optimizer": Categorical(choices=("sgd", "adam"))})
    trials = [
        trial_rows(0, ["solved", "failed"], param_init_sigma=0.1, param_learning_rate=5e-3, param_optimizer="adam"),
        trial_rows(2, ["marginal"], param_init_sigma=1e-3, param_learning_rate=5e-2, param_optimizer="adam"),
        trial_rows(7, ["solved", "diverged", "solved"], param_init_sigma=1.0, param_optimizer="sgd"),
    ]
    found = json.loads(_read(tmp_path / "sweep", spec, *trials).as_json("sweep", ()))
    assert _unpacked(found["trial"]) == [0, 2, 7]
    assert _unpacked(found["size"]) == [2, 1, 3]
    assert _unpacked(found["replicate"]) == [0, 1, 0, 0, 1, 2]
    names = [each["name"] for each in found["outcomes"]]
    outcomes = [names[int(at)] for at in _unpacked(found["outcome"])]
    assert outcomes == ["solved", "failed", "marginal", "solved", "diverged", "solved"]
    assert {each["name"] for each in found["outcomes"] if each["stuck"]} == {"marginal"}
    assert {each["name"] for each in found["outcomes"] if not each["judged"]} == {"failed"}
    axes = {each["name"]: each for each in found["axes"]}
    assert list(axes) == ["init_sigma", "learning_rate", "optimizer", "loss_median"]
    assert np.allclose(_unpacked(axes["init_sigma"]["values"]), [0.1, 1e-3, 1.0])
    assert axes["init_sigma"]["log"]
    assert axes["optimizer"]["choices"] == ["sgd", "adam"]
    assert _unpacked(axes["optimizer"]["values"]) == [1, 1, 0]


def test_of_very_many_trials_some_by_lot_and_the_extremes_are_in_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = [trial_rows(trial, ["solved"] * 2, param_init_sigma=0.5 + trial) for trial in range(60)]
    for trial, rows in enumerate(trials):
        for row in rows:
            row["eval_loss"] = abs(trial - 30.5)
    whole = _read(tmp_path / "whole", small_sweep("whole", trials=60), *trials)
    monkeypatch.setattr(explorer, "_MOST_TRAININGS", 20)
    some = _read(tmp_path / "some", small_sweep("some", trials=60), *trials)
    assert whole.lot == ""
    assert 10 <= len(some.points.trials) <= 20
    assert some.lot.startswith(f"The page has {len(some.points.trials)} of 60 trials")
    assert some.points.trainings.num_rows == 2 * len(some.points.trials)
    assert some.points.axis("init_sigma").values.tolist() == [0.5 + trial for trial in some.points.trials]
    monkeypatch.setattr(explorer, "_MOST_TRIALS", 5)
    few = _read(tmp_path / "few", small_sweep("few", trials=60), *trials)
    assert 5 <= len(few.points.trials) <= 15
    assert len(few.points.trials) < len(some.points.trials)
    for before, after in zip(whole.extremes, some.extremes, strict=True):
        assert whole.points.trials[[*before.trials]].tolist() == some.points.trials[[*after.trials]].tolist()
        assert before.values == after.values


def test_the_extremes_are_those_of_the_median_loss(tmp_path: Path) -> None:
    trials = [trial_rows(at, ["solved"], param_init_sigma=0.1, eval_loss=float((at * 5) % 7)) for at in range(7)]
    trials.append(trial_rows(7, ["diverged"], param_init_sigma=0.1))
    lowest, highest = _read(tmp_path / "sweep", small_sweep("ends", trials=8), *trials).extremes
    assert lowest.values == (0, 1, 2, 3, 4)
    assert highest.values == (6, 5, 4, 3, 2)
    assert lowest.trials[:2] == (0, 3)


def test_some_of_each_outcome_and_the_extremes_are_shown_in_full(tmp_path: Path) -> None:
    rows = [
        trial_rows(at, ["solved"] * 4 + ["marginal"], param_init_sigma=0.1, eval_loss=float(at)) for at in range(20)
    ]
    found = _read(tmp_path / "sweep", small_sweep("full", trials=20, replicates=5), *rows)
    extreme = {at for one in found.extremes for at in one.trials}
    shown = {(each.trial, each.replicate) for each in found.samples}
    assert {(trial, replicate) for trial in extreme for replicate in range(5)} <= shown
    others = [each for each in shown if each[0] not in extreme]
    assert 0 < sum(replicate < 4 for _, replicate in others) <= PER_ENDING
    assert all(len(each.curve) == 5 for each in found.samples)


def test_moving_trainings_and_still_ones_are_chosen_apart(tmp_path: Path) -> None:
    spec, still = small_sweep("apart", trials=1, replicates=60), [5.0, 4.0, 3.0, 3.0, 3.0]
    directory = SweepDirectory.create(tmp_path / "s", spec, {})
    rows = trial_rows(0, ["plateau"] * 59 + ["diverged"], sweep=directory.sweep, param_init_sigma=0.1)
    with open_writer(directory) as writer:
        commit(writer, rows, dict.fromkeys(range(5), still) | {59: [5.0]})
    with Ledger(directory.place).reading() as connection:
        found = present(read_explorer(connection, spec, None, None))
    lot = Counter((each.outcome, each.motion) for each in found.samples if each.is_by_lot)
    assert lot == {("plateau", "moving"): PER_ENDING, ("plateau", "still"): 5, ("diverged", ""): 1}
    told = json.loads(found.as_json("s", [ReferenceLevel("zero", 1, 1.0, 1.0, 1.0)]))
    assert told["levels"] == [{"name": "zero", "value": 1.0}]
    moving, stood, diverged = told["curves"]
    assert (moving["motion"], moving["n"], stood["motion"], stood["n"]) == ("moving", 54, "still", 5)
    assert stood["quartiles"] == [[step, loss, loss, loss] for step, loss in zip(STEPS, still, strict=True)]
    assert diverged["quartiles"] == [[0, 5, 5, 5]]
    assert {(each["outcome"], each["motion"]) for each in told["samples"] if each["replicate"] < 5} == {
        ("plateau", "still")
    }


def test_the_roles_are_those_of_the_last_probe(tmp_path: Path) -> None:
    rows = trial_rows(0, ["solved"], param_init_sigma=0.1)
    spec = small_sweep("heads", trials=1)
    directory = sweep_with_heads(tmp_path / "s", spec, [rows], head_rows(rows[0], {(0, 0): "..pp", (0, 1): "...."}))
    with Ledger(directory.place).reading() as connection:
        (sample,) = present(read_explorer(connection, spec, None, None)).samples
    assert sample.roles == ((0, ("positional", "none")),)


def test_a_sweep_that_varies_nothing_has_nothing_to_explore(tmp_path: Path) -> None:
    spec = small_sweep("fixed", space={"n_steps": 8}, trials=1)
    with Ledger(sweep_on_disk(tmp_path / "s", spec, trial_rows(0, ["solved"])).place).reading() as connection:
        assert read_explorer(connection, spec, None, None) is None
