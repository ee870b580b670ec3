"""The manifests for Kubernetes: what KubeRay's schema allows, what the command line knows, what a sweep needs."""

import json
from importlib.metadata import version
from typing import Any

import pytest

from attnsweep.orchestrator.cli.run_options import parse_shard
from attnsweep.orchestrator.storage.shards import Shard
from tests.infra.commands import ROOT, parsed, requirement
from tests.infra.manifests import CRDS, built, pods, problems

KUBERNETES = ROOT / "infra" / "kubernetes"
VARIANTS = sorted(path.parent.name for path in KUBERNETES.glob("*/kustomization.yaml"))
RAY = requirement("ray")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CRDS.is_dir(), reason="KubeRay's resource definitions are not here: ../shared/data/kuberay"),
]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_manifest_has_no_problems(name: str) -> None:
    assert problems(built(KUBERNETES / name), RAY) == []


def test_there_are_a_plain_one_a_queued_one_one_for_shards_and_one_for_spot_machines() -> None:
    assert VARIANTS == ["base", "kueue", "shards", "spot"]
    base, kueue, _, spot = (built(KUBERNETES / name) for name in VARIANTS)
    [workers] = base["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert (base["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"], workers["minReplicas"]) == (True, 0)
    assert kueue["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "attnsweep"}
    assert not kueue["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"]
    assert "nodeSelector" not in pods(spot)[0]
    assert pods(spot)[1]["nodeSelector"]


def test_a_number_in_the_place_of_shard_makes_one_of_several_jobs() -> None:
    text = json.dumps(built(KUBERNETES / "shards"))
    jobs = [json.loads(text.replace("SHARD", str(index))) for index in range(2)]
    assert [job["metadata"]["name"] for job in jobs] == ["attnsweep-0", "attnsweep-1"]
    assert [parse_shard(parsed(job["spec"]["entrypoint"])["of_shard"]) for job in jobs] == [Shard(0, 4), Shard(1, 4)]


def test_the_image_is_that_of_this_version() -> None:
    for pod in pods(built(KUBERNETES / "base")):
        assert pod["containers"][0]["image"].rpartition(":")[2] == version("attnsweep")


def test_only_the_driver_has_credentials_and_by_reference() -> None:
    head, *workers = pods(built(KUBERNETES / "base"))
    assert head["containers"][0]["envFrom"] == [{"secretRef": {"name": "attnsweep"}}]
    assert not any({"env", "envFrom"} & worker["containers"][0].keys() for worker in workers)


HEAD = "spec/rayClusterSpec/headGroupSpec"
WORKERS = "spec/rayClusterSpec/workerGroupSpecs/0"
RUN = "attnsweep run quickstart --dir s3://B/s"
MUTANTS: dict[str, tuple[str, object, str]] = {
    "a misspelt field": ("spec/ttlSecondsAfterFinish", 600, "'ttlSecondsAfterFinish' was unexpected"),
    "a number as text": (f"{WORKERS}/minReplicas", "0", "'0' is not of type 'integer'"),
    "a mode that does not exist": (
        "spec/rayClusterSpec/authOptions/mode",
        "tokens",
        "'tokens' is not one of ['disabled', 'token']",
    ),
    "a misspelt field of a pod": (
        f"{WORKERS}/template/spec/containers/0/securityContext/runAsNonroot",
        True,
        "'runAsNonroot' was unexpected",
    ),
    "a policy that is a number": (
        f"{WORKERS}/template/spec/containers/0/imagePullPolicy",
        3,
        "3 is not of type 'string'",
    ),
    "an option that is not there": ("spec/entrypoint", f"{RUN} --or-resum", "entrypoint: No such option: --or-resum"),
    "a command that cannot be repeated": ("spec/entrypoint", RUN, "would be refused without --or-resume"),
    "nothing that the autoscaler sees": (
        "spec/entrypoint",
        f"{RUN} --or-resume --device cuda",
        "entrypoint: no demand for more machines without --trainers",
    ),
    "trainers on cores": (
        "spec/entrypoint",
        f"{RUN} --or-resume --trainers 8",
        "entrypoint: trains on cores until a GPU is there",
    ),
    "a directory inside the pod": (
        "spec/entrypoint",
        "attnsweep run quickstart --dir /tmp/s --or-resume",
        "the directory is lost with the pod",
    ),
    "another Ray": ("spec/rayClusterSpec/rayVersion", "2.61.0", "rayVersion: 2.61.0, where the package asks"),
    "no token": ("spec/rayClusterSpec/authOptions/mode", "disabled", "authOptions: whoever reaches"),
    "trainers on the head": (f"{HEAD}/rayStartParams", {}, "headGroupSpec: trainers beside the driver"),
    "no notice to trainers": (
        f"{WORKERS}/template/spec/containers/0/lifecycle",
        {},
        "preStop: trainers are killed",
    ),
    "little shared memory": (
        f"{WORKERS}/template/spec/volumes/0/emptyDir",
        {},
        "ray-worker: /dev/shm has 64 MB",
    ),
    "a secret in clear text": (
        f"{HEAD}/template/spec/containers/0/env",
        [{"name": "AWS_SECRET_ACCESS_KEY", "value": "x"}],
        "AWS_SECRET_ACCESS_KEY in clear text",
    ),
    "no time to leave": (
        f"{WORKERS}/template/spec/terminationGracePeriodSeconds",
        5,
        "ray-worker: no time to hand back its packs",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_manifest_with_a_fault_is_refused(name: str) -> None:
    path, value, expected = MUTANTS[name]
    *parents, last = path.split("/")
    manifest = built(KUBERNETES / "base")
    place: Any = manifest
    for key in parents:
        place = place[int(key) if key.isdecimal() else key]
    place[last] = value
    found = problems(manifest, RAY)
    assert len(found) >= 1
    assert any(expected in each for each in found), found
