"""Outcomes, events and metrics of a user's own problem stand in rows, rates, report and comparison like the shipped."""

from pathlib import Path

import pytest
from rich.console import Console

from attnsweep import open_sweep
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.report.page import make_report
from attnsweep.orchestrator.running.session import run_sweep
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.errors import UserError

ADDING = """
import torch
from torch import nn
import attnsweep as at


class Adder(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.token, self.head = nn.Embedding(p, 8), nn.Linear(16, p)

    def forward(self, pairs):
        return self.head(self.token(pairs).flatten(-2))


def data(p: int = 5):
    pairs = torch.cartesian_prod(torch.arange(p), torch.arange(p))
    return pairs, pairs.sum(1) % p


adding = at.problem(
    "adding",
    model=lambda p: Adder(p),
    data=data,
    loss="cross_entropy",
    solved="accuracy >= 0.99",
    outcomes={"memorized": at.Outcome("knows its pairs only", "#123456", is_stuck=True, when="train_accuracy >= 0.99")},
    events={"fits": "train_accuracy >= 0.99", "half": "accuracy >= 0.5"},
    defaults={"optimizer": "adam", "n_steps": 150},
)


def sweep():
    space = {"learning_rate": at.Float(3e-4, 3e-2, log=True), "train_fraction": at.Categorical((0.5, 0.8))}
    return at.Sweep(name="adding", workload="adding.py:adding", space=space, sampler="qmc", trials=8, replicates=2)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    (folder / "adding.py").write_text(ADDING)
    spec = load_sweep(str(folder / "adding.py"))
    run_sweep(spec, folder / "sweep", Resources(local=True), Console(quiet=True))
    return folder / "sweep"


@pytest.fixture(scope="module")
def data(place: Path) -> SweepData:
    return open_sweep(place)


def test_rows_have_the_outcome_and_the_step_of_each_event(data: SweepData) -> None:
    rows = data.trainings().to_pylist()
    assert {row["outcome"] for row in rows} >= {"memorized"}
    curves = data.curves().to_pylist()
    for row in rows:
        assert row["stuck"] == (row["outcome"] in ("memorized", "degenerate_zero", "marginal"))
        key = (row["trial"], row["replicate"])
        at = [
            point["step"]
            for point in curves
            if (point["trial"], point["replicate"]) == key
            and point["metric"] == "train_accuracy"
            and point["value"] >= 0.99
        ]
        assert row["event_fits"] == min(at, default=None)
        probes = [point["step"] for point in curves if (point["trial"], point["replicate"]) == key]
        assert row["before_event_fits"] == max((step for step in probes if not at or step < at[0]), default=None)
    [memorized] = data.sql("from outcomes where outcome = 'memorized'").to_pylist()
    assert (memorized["sentence"], memorized["colour"]) == ("knows its pairs only", "#123456")


def test_rates_onsets_and_events_know_them(data: SweepData) -> None:
    n = sum(outcome == "memorized" for outcome in data.trainings()["outcome"].to_pylist())
    assert data.stuck_rates(outcome="memorized")["k"][0].as_py() == n
    assert data.onset("memorized")["n_came"].to_pylist() == [n]
    fits = data.event("fits", by="train_fraction")
    assert sum(fits["n_came"].to_pylist()) == data.trainings()["event_fits"].drop_null().length()
    delay = data.event("half", after="fits")
    assert delay["n_trainings"].to_pylist() == [data.trainings()["event_fits"].drop_null().length()]
    with pytest.raises(UserError, match="event: got 'fit', expected one of fits, half; did you mean fits"):
        data.event("fit")
    with pytest.raises(UserError, match=r"outcome: got 'memorised', expected one of stuck, solved, .*memorized"):
        data.stuck_rates(outcome="memorised")


def test_the_report_is_about_an_outcome_of_ones_choice(place: Path, data: SweepData) -> None:
    made = make_report([place], outcome="memorized")
    page, pictures = made.text, made.pictures
    assert "knows its pairs only" in page
    assert "Share of memorized by parameter" in page
    assert "#123456" in page
    names = {picture.name for picture in pictures}
    assert {"metric_accuracy", "metric_train_accuracy", "events", "delays_between_events", "cells"} <= names
    plain = make_report([place]).text
    assert "Stuck rate by parameter" in plain
    with pytest.raises(UserError, match="outcome: got 'won'"):
        make_report([place], outcome="won")
