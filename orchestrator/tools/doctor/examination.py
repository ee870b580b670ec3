"""All checks of `attnsweep doctor`, in the order in which a user fixes the faults that they find.

The checks of library versions, Ray's token, MLflow and the sweep directory are here; those of nodes are in `nodes.py`.
"""

import os
import platform
import secrets
import stat
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.tools.doctor.nodes import Finding, check_nodes, nodes_of_cluster, this_machine
from attnsweep.orchestrator.tracking.store import database_of, in_one_line, open_client, tracking_uri
from attnsweep.workloads.errors import UserError

_SECONDS = 30.0
_FOLDER = ".doctor"
_TOKEN = "make one with ray get-auth-token --generate, and copy ~/.ray/auth_token to every node"


def examine(address: str | None, directory: Place | None) -> Iterator[Finding]:
    """Checks this machine, without Ray, or each node of a cluster; also the directory of a future sweep."""
    yield check_versions()
    yield check_token(address)
    driver = Environment.current()
    if address is None:
        yield from check_nodes([this_machine()], driver)
    else:
        from attnsweep.orchestrator.training.cluster import connection
        from attnsweep.orchestrator.training.resources import cluster_address

        try:
            with connection(cluster_address(address)):
                yield from check_nodes(nodes_of_cluster(), driver)
        except UserError as mistake:
            yield Finding("cluster", f"{mistake.given} is not {mistake.expected}", mistake.fix)
    yield check_mlflow()
    if directory is not None:
        yield check_directory(directory)


def check_versions() -> Finding:
    unmet = []
    for requirement in map(Requirement, requires("attnsweep") or ()):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            unmet.append(f"no {requirement.name}")
        else:
            if not requirement.specifier.contains(installed, prereleases=True):
                unmet.append(f"{requirement.name} {installed}, expected {requirement.specifier}")
    if unmet:
        return Finding("versions", ", ".join(unmet), "install attnsweep again, in an environment of its own")
    named = [f"{name} {version(name)}" for name in ("attnsweep", "ray", "torch")]
    return Finding("versions", ", ".join([*named, f"Python {platform.python_version()}"]))


def check_token(address: str | None) -> Finding:
    """The cluster must require a token, and this user's file must not be readable by others. Without an address, Ray
    creates a token of its own."""
    mode = os.environ.get("RAY_AUTH_MODE")
    if address is None:
        if mode == "disabled":
            words = "RAY_AUTH_MODE=disabled: other users of this machine can run code as you"
            return Finding("token", words, "unset RAY_AUTH_MODE")
        return Finding("token", "Ray asks for one")
    if mode != "token":
        words = f"RAY_AUTH_MODE is {mode or 'not set'}: Ray asks nobody for a token"
        return Finding("token", words, "export RAY_AUTH_MODE=token, on every node before ray start")
    if not os.environ.get("RAY_AUTH_TOKEN"):
        path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
        if not path.is_file():
            return Finding("token", f"there is no token in {path}", _TOKEN)
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            return Finding("token", f"{path} can be read by others", f"chmod 600 {as_argument(path)}")
    if _lets_strangers_in(address):
        words = "the cluster accepts clients without a token"
        return Finding("token", words, "start Ray with RAY_AUTH_MODE=token on the head and on each worker")
    return Finding("token", "the cluster asks for it")


def check_mlflow(uri: str | None = None) -> Finding:
    """MLflow's store must answer or, for a database that does not exist yet, must be creatable."""
    try:
        uri = tracking_uri(uri)
    except UserError as mistake:
        return Finding("MLflow", f"{mistake.given}", mistake.fix)
    shown = without_credentials(uri)
    if (database := database_of(uri)) is not None and not database.exists():
        try:
            LocalFolder(database.parent).check_makeable()
        except OSError as error:
            return Finding("MLflow", f"{shown} cannot be written ({error.strerror})", "set MLFLOW_TRACKING_URI")
        return Finding("MLflow", f"{shown}, made by the first sweep")
    try:
        open_client(uri).search_experiments(max_results=1)
    except Exception as error:  # noqa: BLE001  # MLflow and its databases may raise any error.
        fix = "start it, or correct MLFLOW_TRACKING_URI; sweeps run without MLflow, and mlflow-sync logs them later"
        return Finding("MLflow", f"{shown}: {in_one_line(error)}", fix)
    return Finding("MLflow", f"{shown} answers")


def check_directory(place: Place) -> Finding:
    """The place need not exist yet."""
    name = f"{secrets.token_hex(4)}.json"
    try:
        place.check_makeable()
        if not isinstance(place, LocalFolder):
            place.put_text(f"{_FOLDER}/{name}", "{}\n")
            place.read_text(f"{_FOLDER}/{name}")
            place.remove(_FOLDER, [name])
    except UserError as mistake:
        return Finding("directory", f"{mistake.subject}: {mistake.given}", mistake.fix)
    except OSError as error:
        return Finding("directory", f"{place} cannot be written ({error.strerror})", "choose another --dir")
    return Finding("directory", f"{place} can be written")


def _lets_strangers_in(address: str) -> bool:
    """Whether it answers a process that has no token."""
    if address.startswith("ray://"):
        return False
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check"]
    if address != "auto":
        command += ["--address", address]
    try:
        process = subprocess.run(
            command, env={**variables, "RAY_AUTH_MODE": "disabled"}, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return process.returncode == 0
