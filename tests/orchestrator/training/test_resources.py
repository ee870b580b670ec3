"""What a Ray that starts on this machine gets ready for."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch

from attnsweep.orchestrator.training import cluster
from attnsweep.orchestrator.training.messages import RunContext
from attnsweep.orchestrator.training.resources import Resources, open_resources
from attnsweep.orchestrator.training.trainer import Trainer
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.errors import UserError

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


def test_merged_steps_are_for_gpus() -> None:
    assert Resources(device="cuda", engine="merged").engine == "merged"
    with pytest.raises(UserError, match="merged with device auto"):
        Resources(engine="merged")
    # As where a sweep that began on a GPU is resumed on a CPU.
    with pytest.raises(UserError, match="go on with --device cuda"):
        Trainer(CategoryPairs(), RunContext("sweep", engine="merged"), "cpu")
