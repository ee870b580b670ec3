"""The manifests for Kubernetes are what KubeRay's schema allows and what the command line knows."""

import pytest

from tests.infra.commands import ROOT, parsed, requirement
from tests.infra.manifests import CRDS, built, problems

KUBERNETES = ROOT / "infra" / "kubernetes"
VARIANTS = sorted(path.parent.name for path in KUBERNETES.glob("*/kustomization.yaml"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CRDS.is_dir(), reason="KubeRay's resource definitions are not here: ../shared/data/kuberay"),
]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_manifest_validates(name: str) -> None:
    manifest = built(KUBERNETES / name)
    assert problems(manifest) == []
    parameters = parsed(manifest["spec"]["entrypoint"])
    assert parameters["or_resume"]
    assert str(parameters["directory"]).startswith("s3://")
    assert requirement("ray").specifier.contains(manifest["spec"]["rayClusterSpec"]["rayVersion"])


@pytest.mark.parametrize(("field", "value"), [("ttlSecondsAfterFinish", 600), ("backoffLimit", "0")])
def test_a_fault_is_seen(field: str, value: object) -> None:
    manifest = built(KUBERNETES / "base")
    manifest["spec"][field] = value
    assert len(problems(manifest)) == 1
