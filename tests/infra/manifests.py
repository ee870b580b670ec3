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

CRDS = Path(__file__).parents[3] / "shared/data/kuberay"


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


def problems(manifest: dict[str, Any]) -> list[str]:
    """What is wrong with the form of a RayJob, without anchors."""
    return [*_schema_errors(manifest), *_pod_errors(manifest)]


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
