"""The resources that trainers request from Ray, given those of the cluster."""

import pytest
import ray

from attnsweep.orchestrator.training.cluster import TrainerShare, share_out
from attnsweep.workloads.errors import UserError


def _cluster(monkeypatch: pytest.MonkeyPatch, **resources: float) -> None:
    monkeypatch.setattr(ray, "cluster_resources", lambda: resources)


def test_one_trainer_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    _cluster(monkeypatch, CPU=3.0)
    assert share_out(None) == [TrainerShare("cpu", 1.0, 0.0)] * 3
    assert share_out(2) == [TrainerShare("cpu", 1.0, 0.0)] * 2


def test_more_trainers_than_cores_would_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    _cluster(monkeypatch, CPU=2.0)
    with pytest.raises(UserError, match=r"--trainers: got 3, expected 1\.\.2 \(CPU cores of the cluster\); lower it"):
        share_out(3)


def test_one_trainer_per_gpu_or_a_fraction_each(monkeypatch: pytest.MonkeyPatch) -> None:
    _cluster(monkeypatch, CPU=16.0, GPU=2.0)
    assert share_out(None) == [TrainerShare("cuda", 1.0, 1.0)] * 2
    assert share_out(5) == [TrainerShare("cuda", 1.0, 1 / 3)] * 5


def test_trainers_on_gpus_share_few_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    _cluster(monkeypatch, CPU=2.0, GPU=1.0)
    assert share_out(4) == [TrainerShare("cuda", 0.5, 0.25)] * 4
