"""`attnsweep doctor`: checks what sweeps need, on this machine or on each node of a Ray cluster."""

import os
import platform
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from attnsweep.orchestrator.storage.copies import is_copy, name_of
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.files import check_makeable, remove, write_text
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.tracking.store import database_of, in_one_line, open_client, tracking_uri
from attnsweep.workloads.errors import UserError, in_words

LEAST_SHM_BYTES = 1_000_000_000
_SECONDS_OF_A_NODE = 180.0
_TOKEN = "make one with ray get-auth-token --generate, and copy ~/.ray/auth_token to every node"
_TINY = {"n_steps": 20, "n_categories": 3, "n_positions": 4}


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's result in words, with a `fix` if something is wrong."""

    check: str
    words: str
    fix: str = ""

    def __str__(self) -> str:
        line = f"{'FAIL' if self.fix else 'ok':4}  {self.check:9}  {self.words}"
        return f"{line}; {self.fix}" if self.fix else line


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """What a node reports, or the `error` that kept it from reporting.

    Attributes:
        environment: Fields of an `Environment`.
        n_gpus: Those that Ray counts, or without Ray NVIDIA's driver; PyTorch sees `n_torch_gpus`.
        packs: The error of a tiny pack that was trained on each device, or empty, by device.
    """

    name: str
    error: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    n_gpus: int = 0
    n_torch_gpus: int = 0
    shm_bytes: int = 0
    packs: Mapping[str, str] = field(default_factory=dict)


def examine(address: str | None, directory: Path | None) -> Iterator[Finding]:
    """Checks this machine or, with an address, each node of a cluster, in the order in which a user mends faults."""
    versions = [f"{name} {version(name)}" for name in ("attnsweep", "ray", "torch")]
    yield Finding("versions", ", ".join([*versions, f"Python {platform.python_version()}"]))
    yield check_token(address)
    if address is None:
        n_gpus = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
        yield from check_nodes([Node(name=platform.node(), n_gpus=n_gpus, **facts())])
    else:
        from attnsweep.orchestrator.training.cluster import connection

        try:
            with connection(address):
                yield from check_nodes(nodes_of_cluster())
        except UserError as mistake:
            yield Finding("cluster", f"{mistake.given} is not {mistake.expected}", mistake.fix)
    yield check_mlflow()
    if directory is not None:
        yield check_directory(directory)


def check_token(address: str | None) -> Finding:
    """A cluster must require a token that no other user can read; a Ray that starts here makes one of its own."""
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


def _lets_strangers_in(address: str) -> bool:
    """Whether it answers a process that has no token."""
    if address.startswith("ray://"):
        return False
    from attnsweep.orchestrator.training.cluster import fault_of

    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    return not fault_of(address, {**variables, "RAY_AUTH_MODE": "disabled"})


def check_nodes(nodes: Sequence[Node]) -> list[Finding]:
    """One finding for each check. If no node answers, nothing else is checked."""

    def check(name: str, fault_of: Callable[[Node], str], fine: str, fix: str, among: Sequence[Node]) -> Finding:
        faults = [f"{node.name}: {fault}" for node in among if (fault := fault_of(node))]
        return Finding(name, ", ".join(faults), fix) if faults else Finding(name, fine)

    def other_libraries(node: Node) -> str:
        return ", ".join(Environment.current().changes(Environment.model_validate(node.environment)))

    def lost_gpus(node: Node) -> str:
        build = node.environment["versions"]["torch"]
        is_lost = node.n_gpus and not node.n_torch_gpus
        return f"it has {node.n_gpus}, of which PyTorch {build} sees none" if is_lost else ""

    def little_shm(node: Node) -> str:
        return f"{node.shm_bytes / 1e6:.0f} MB" if node.shm_bytes < LEAST_SHM_BYTES else ""

    def failed_packs(node: Node) -> str:
        return ", ".join(f"on {device} {error}" for device, error in node.packs.items() if error)

    answered = [node for node in nodes if not node.error]
    missing = "install attnsweep in the environment whose `ray start` made the node"
    names = f"{len(nodes)}: {', '.join(node.name for node in nodes)}"
    found = [check("nodes", lambda node: node.error, names, missing, nodes)]
    if not answered:
        return found
    has_gpus = any(node.n_gpus or node.n_torch_gpus for node in answered)
    fine = "PyTorch sees them" if has_gpus else "there is none: trainings run on the CPU"
    build = "install PyTorch's build for CUDA there, or correct CUDA_VISIBLE_DEVICES where Ray starts"
    mount = "mount a larger one: docker run --shm-size=1g; in Kubernetes an emptyDir of medium Memory"
    return [
        *found,
        check("libraries", other_libraries, "versions as here", "install the same environment there as here", answered),
        check("GPUs", lost_gpus, fine, build, answered),
        check("/dev/shm", little_shm, f"{LEAST_SHM_BYTES / 1e9:g} GB or more", mount, answered),
        check("a pack", failed_packs, "trained on each device", "repair PyTorch or the GPU's driver there", answered),
    ]


def facts() -> dict[str, Any]:
    """Of the machine that calls it, as fields of `Node`. Takes seconds."""
    import torch

    n_seen, shm = torch.cuda.device_count(), os.statvfs("/dev/shm") if Path("/dev/shm").is_dir() else None
    return {
        "environment": Environment.current().model_dump(),
        "n_torch_gpus": n_seen,
        "shm_bytes": 0 if shm is None else shm.f_frsize * shm.f_blocks,
        "packs": {"cpu": _trained("cpu")} | {f"cuda:{index}": _trained("cuda", index) for index in range(n_seen)},
    }


def _trained(device: str, index: int = -1) -> str:
    """The error of a tiny pack, or nothing."""
    import torch

    from attnsweep.workloads.engine.contract import Training
    from attnsweep.workloads.engine.pack import Pack
    from attnsweep.workloads.engine.process import check_rounding
    from attnsweep.workloads.registry import load_workload

    workload = load_workload("category_pairs")
    try:
        check_rounding()
        with torch.cuda.device(index):  # which does nothing for a negative index
            trainings = [Training(workload.parameters.resolve(_TINY), seed) for seed in range(2)]
            Pack(workload, trainings, device).train_to_end()
    except Exception as error:  # noqa: BLE001  # a broken PyTorch or GPU raises anything
        return in_words(error)
    return ""


def nodes_of_cluster() -> list[Node]:
    """The head node first, the others by name."""
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    alive = [node for node in ray.nodes() if node["Alive"]]
    alive.sort(key=lambda node: ("node:__internal_head__" not in node["Resources"], node["NodeManagerHostname"]))
    # Ray would hide GPUs from a task that requests none.
    sees_gpus = {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}
    ask = ray.remote(num_cpus=0, max_retries=0, runtime_env=sees_gpus)(facts)
    places = (NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in alive)
    answers = [ask.options(scheduling_strategy=place).remote() for place in places]
    ray.wait(answers, num_returns=len(answers), timeout=_SECONDS_OF_A_NODE)
    nodes = []
    for node, answer in zip(alive, answers, strict=True):
        name, n_gpus = str(node["NodeManagerHostname"]), int(node["Resources"].get("GPU", 0))
        try:
            nodes.append(Node(name=name, n_gpus=n_gpus, **ray.get(answer, timeout=0)))
        except RayError as error:
            lines = str(error).strip().splitlines() or [f"no answer in {_SECONDS_OF_A_NODE:g} s"]
            nodes.append(Node(name=name, error=lines[-1]))
    return nodes


def check_mlflow() -> Finding:
    """The store must answer, or a database that does not exist yet must be creatable."""
    try:
        uri = tracking_uri()
    except UserError as mistake:
        return Finding("MLflow", f"{mistake.given}", mistake.fix)
    shown = without_credentials(uri)
    try:
        if (database := database_of(uri)) is not None and not database.exists():
            check_makeable(database.parent)
            return Finding("MLflow", f"{shown}, made by the first sweep")
        open_client(uri).search_experiments(max_results=1)
    except Exception as error:  # noqa: BLE001  # MLflow and its databases raise anything
        fix = "start it, or correct MLFLOW_TRACKING_URI; sweeps run without MLflow, and mlflow-sync logs them later"
        return Finding("MLflow", f"{shown}: {in_one_line(error)}", fix)
    return Finding("MLflow", f"{shown} answers")


def check_directory(place: Path) -> Finding:
    """The place need not exist yet."""
    name = f".doctor-{secrets.token_hex(4)}.json"
    try:
        check_makeable(place)
        if is_copy(place):
            place.mkdir(parents=True, exist_ok=True)
            write_text(place, name, "{}\n")
            remove([place / name])
    except UserError as mistake:
        return Finding("directory", f"{mistake.subject}: {mistake.given}", mistake.fix)
    except OSError as error:
        return Finding("directory", f"{name_of(place)} cannot be written ({error.strerror})", "choose another --dir")
    return Finding("directory", f"{name_of(place)} can be written")
