"""Checks Kubernetes manifests without a cluster: by KubeRay's own schema, in which nothing unknown is let through."""

import copy
import gzip
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonpatch
import jsonschema
import kubernetes_validate
import yaml
from packaging.requirements import Requirement
from typer.exceptions import TyperException

from tests.infra.commands import parsed

CRDS = Path(__file__).parents[3] / "shared/data/kuberay"
GRACE_SECONDS = 20
"""The least that a pod needs: its trainers hand back their packs within a few."""


def built(folder: Path) -> dict[str, Any]:
    """What `kubectl kustomize` makes of a folder whose patches are lists of operations."""
    customization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    [resource] = customization["resources"]
    path = folder / resource
    manifest = built(path) if path.is_dir() else yaml.safe_load(path.read_text())
    for patch in customization.get("patches", ()):
        assert patch["target"] == {"kind": manifest["kind"], "name": manifest["metadata"]["name"]}
        manifest = jsonpatch.apply_patch(manifest, yaml.safe_load(patch["patch"]))
    return copy.deepcopy(manifest)


def problems(manifest: dict[str, Any], ray: Requirement) -> list[str]:
    """What is wrong with a RayJob: its form first, since the rest relies on it.

    Args:
        manifest: The whole of it, without anchors.
        ray: The version of Ray that the package asks for.
    """
    of_form = [*_schema_errors(manifest), *_pod_errors(manifest)]
    return of_form or [*_entrypoint_problems(manifest), *_cluster_problems(manifest, ray)]


def pods(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """The pods' specs, the head's first."""
    cluster = manifest["spec"]["rayClusterSpec"]
    return [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


@cache
def _schema(version: str) -> jsonschema.Draft7Validator:
    with gzip.open(CRDS / "ray.io_rayjobs.yaml.gz") as file:
        definition = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    [schema] = [each["schema"]["openAPIV3Schema"] for each in definition["spec"]["versions"] if each["name"] == version]
    schema["properties"]["metadata"] = {"type": "object"}
    return jsonschema.Draft7Validator(_strict(schema))


def _strict(schema: Any) -> Any:
    """A structural OpenAPI schema as a JSON schema that refuses unknown fields."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: value if key in ("enum", "default", "required") else _strict(value) for key, value in schema.items()}
    if isinstance(properties := schema.get("properties"), dict):
        strict["properties"] = {name: _strict(each) for name, each in properties.items()}
        if "additionalProperties" not in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            strict["additionalProperties"] = False
    if strict.pop("x-kubernetes-int-or-string", False):
        strict.pop("anyOf", None)
        strict["type"] = ["integer", "string"]
    if strict.pop("nullable", False) and "type" in strict:
        strict["type"] = [strict["type"], "null"]
    return strict


def _schema_errors(manifest: dict[str, Any]) -> Iterator[str]:
    group, _, version = manifest["apiVersion"].partition("/")
    assert (group, manifest["kind"]) == ("ray.io", "RayJob")
    for error in _schema(version).iter_errors(manifest):
        yield f"{'/'.join(map(str, error.absolute_path))}: {error.message}"


def _pod_errors(manifest: dict[str, Any]) -> Iterator[str]:
    """By Kubernetes' own schemas, which know more of a pod than the copy inside KubeRay's."""
    for spec in pods(manifest):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
        try:
            kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"pod: {error}"


def _entrypoint_problems(manifest: dict[str, Any]) -> Iterator[str]:
    spec = manifest["spec"]
    try:
        parameters = parsed(spec["entrypoint"])
    except (KeyError, TyperException) as error:
        yield f"entrypoint: {error}"
        return
    if not parameters["or_resume"]:
        yield "entrypoint: a repetition would be refused without --or-resume"
    if not str(parameters["directory"]).startswith("s3://"):
        yield "entrypoint: the directory is lost with the pod"
    cluster = spec["rayClusterSpec"]
    if parameters["device"] != "cuda":
        yield "entrypoint: trains on cores until a GPU is there"
    if cluster.get("enableInTreeAutoscaling") and parameters["trainers"] is None:
        yield "entrypoint: no demand for more machines without --trainers"
    if not spec.get("backoffLimit"):
        yield "backoffLimit: nobody repeats it"
    if not spec.get("shutdownAfterJobFinishes") or "ttlSecondsAfterFinished" not in spec:
        yield "shutdownAfterJobFinishes, ttlSecondsAfterFinished: the machines stay"


def _cluster_problems(manifest: dict[str, Any], ray: Requirement) -> Iterator[str]:
    cluster = manifest["spec"]["rayClusterSpec"]
    head, *workers = pods(manifest)
    if not ray.specifier.contains(cluster["rayVersion"]):
        yield f"rayVersion: {cluster['rayVersion']}, where the package asks for {ray}"
    if cluster.get("authOptions", {}).get("mode") != "token":
        yield "authOptions: whoever reaches the head runs code there"
    if cluster["headGroupSpec"]["rayStartParams"].get("num-cpus") != "0":
        yield "headGroupSpec: trainers beside the driver"
    if manifest["spec"]["submissionMode"] == "SidecarMode" and head["restartPolicy"] != "Never":
        yield "headGroupSpec: SidecarMode asks for restartPolicy Never"
    for group in cluster["workerGroupSpecs"]:
        if not group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]:
            yield f"{group['groupName']}: minReplicas <= replicas <= maxReplicas does not hold"
    for pod in (head, *workers):
        yield from _pod_problems(pod)
    for pod in workers:
        hook = pod["containers"][0].get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
        if "ray drain-node --reason DRAIN_NODE_REASON_PREEMPTION" not in " ".join(hook):
            yield "preStop: trainers are killed with their packs"


def _pod_problems(pod: dict[str, Any]) -> Iterator[str]:
    [container] = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    shared = [mount for mount in container["volumeMounts"] if mount["mountPath"] == "/dev/shm"]
    if not shared or volumes[shared[0]["name"]].get("emptyDir", {}).get("medium") != "Memory":
        yield f"{container['name']}: /dev/shm has 64 MB, and Ray's object store falls back to the disk"
    if not pod["securityContext"].get("runAsNonRoot"):
        yield f"{container['name']}: runs as root"
    if container["resources"]["requests"] != container["resources"]["limits"]:
        yield f"{container['name']}: Ray counts limits, the scheduler requests"
    if pod.get("terminationGracePeriodSeconds", 0) < GRACE_SECONDS:
        yield f"{container['name']}: no time to hand back its packs"
    for variable in container.get("env", ()):
        if "value" in variable and any(word in variable["name"] for word in ("SECRET", "KEY", "PASSWORD", "TOKEN")):
            yield f"{container['name']}: {variable['name']} in clear text"
    _, colon, tag = container["image"].rpartition(":")
    if not colon or tag == "latest":
        yield f"{container['name']}: an image without a version"
