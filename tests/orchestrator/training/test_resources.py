"""What a Ray that starts on this machine gets ready for."""

import os
import subprocess
import sys

import pytest
import ray

from attnsweep.orchestrator.training.messages import RunContext
from attnsweep.orchestrator.training.resources import Resources, open_resources, starting_meanwhile
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
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("attnsweep.orchestrator.training.resources._FILES_OF_GPUS", ["/" if has_gpu else "/missing"])
    assert resources.preloaded == modules


def test_merged_steps_are_for_gpus() -> None:
    assert Resources(device="cuda", engine="merged").engine == "merged"
    with pytest.raises(UserError, match="merged with the device auto"):
        Resources(engine="merged")
    # As where a sweep that began on a GPU is resumed on a CPU.
    with pytest.raises(UserError, match="continue with --device cuda"):
        Trainer(CategoryPairs(), RunContext("sweep", engine="merged"), "cpu")


def test_a_process_keeps_the_ray_that_it_was_connected_to(local_ray: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with starting_meanwhile(Resources()), open_resources(Resources()):
        pass
    assert ray.get_runtime_context().gcs_address == local_ray


MISTAKE = """
import ray
from attnsweep.orchestrator.training.resources import Resources, open_resources, starting_meanwhile
try:
    with starting_meanwhile(Resources(n_trainers=1)):
        raise ValueError
except ValueError:
    print(ray.is_initialized())
with starting_meanwhile(Resources(n_trainers=1)):
    with open_resources(Resources(n_trainers=1)):
        print(ray.is_initialized())
    print(ray.is_initialized())
"""


@pytest.mark.scale
@pytest.mark.ray
def test_a_ray_that_starts_meanwhile_ends_with_its_use_or_with_a_mistake() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", MISTAKE], env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.split() == ["False", "True", "False"]
