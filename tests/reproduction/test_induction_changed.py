"""GPTs of the study `induction-changed`: what is changed, and nothing else."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from attnsweep.reproduction.studies.gpt import CHANGES, Change, ChangedGPT, reproduce_changes
from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.gpt import GPTParameters

VALUES = {"task": "induction", "n_tokens": 8, "d_model": 8, "n_blocks": 2, "dtype": "float64", "n_steps": 1}


NOTHING = Change(row="nothing", values={})


def _training() -> Training[GPTParameters]:
    return Training(GPTParameters.resolve(VALUES), 3)


def _started(change: Change) -> State:
    workload, lanes = ChangedGPT(change), Lanes([_training()], torch.device("cpu"))
    return workload.read(workload.initial(workload.build(lanes.shared), lanes))


def _stepped(change: Change) -> State:
    workload, training = ChangedGPT(change), _training()
    pack = Pack(workload, [training])
    pack.train_to_end()
    return workload.read(pack.final_state(np.arange(1))[1])


@pytest.fixture(scope="module")
def unchanged() -> State:
    return _stepped(NOTHING)


def test_steps_of_a_part_are_shorter_from_the_same_start(unchanged: State) -> None:
    change = Change(row="shorter", values={}, steps={"token": 0.1})
    start, end = _started(NOTHING), _stepped(change)
    for name in start:
        factor, step = 0.1 if name == "token.weight" else 1.0, unchanged[name] - start[name]
        # Adam adds 1e-8 to the root of gradients, which are as many times smaller.
        torch.testing.assert_close(end[name] - start[name], factor * step, rtol=1e-3, atol=1e-9)


def test_a_part_starts_larger() -> None:
    change = Change(row="larger", values={}, start={"attention.out": 10})
    start, larger = _started(NOTHING), _started(change)
    changed = {name for name, value in start.items() if not torch.equal(value, larger[name])}
    assert changed == {name for name in start if "attention.out" in name}
    for name in changed:
        torch.testing.assert_close(larger[name], 10 * start[name])


def test_a_part_is_left_out(unchanged: State) -> None:
    end = _stepped(Change(row="without", values={}, steps={"ffn.second.bias": 0}))
    assert unchanged["blocks.0.ffn.second.bias"].any()
    assert not end["blocks.0.ffn.second.bias"].any()


@pytest.mark.slow
def test_each_change_has_a_row() -> None:
    rows = reproduce_changes(Path(), Console(file=io.StringIO()), n_seeds=2, n_steps=1).rows
    assert [row.name for row in rows] == [change.row for change in CHANGES]
    assert {row.ours for row in rows} == {0.0}
