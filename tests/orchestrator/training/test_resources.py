"""What a Ray that starts on this machine gets ready for."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch

from attnsweep.orchestrator.training import cluster
from attnsweep.orchestrator.training.resources import Resources, open_resources

TRAINER = "attnsweep.orchestrator.training.trainer_actor"


@pytest.mark.parametrize(
    ("resources", "has_gpu", "modules"),
    [
        (Resources(), False, [TRAINER]),
        # One process for each core starts all the same, and most of them would import PyTorch for nothing.
        (Resources(n_trainers=1), False, []),
        (Resources(), True, []),
        (Resources(device="cpu"), True, [TRAINER]),
        (Resources(address="somewhere:1"), False, []),
    ],
)
def test_its_processes_import_the_trainer_if_each_becomes_one(
    resources: Resources, has_gpu: bool, modules: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def connection(address: str | None, preloaded: Sequence[str] = ()) -> Iterator[bool]:
        found.extend(preloaded)
        yield False

    found: list[str] = []
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(cluster, "connection", connection)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    with open_resources(resources):
        assert found == modules
