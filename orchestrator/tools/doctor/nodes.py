"""Collects the facts about this machine, or about each node of a Ray cluster, and finds what is wrong with them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.tools.doctor.facts import NodeFacts

LEAST_SHM_BYTES = 1_000_000_000
MOST_CLOCK_SECONDS = 60.0
_MOST_NAMED = 4
_MODULE = "attnsweep.orchestrator.tools.doctor.facts"
_SECONDS = 180.0
_OWN_DEVICES = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
"""Environment variables of the tasks that ask nodes. The variable keeps Ray from hiding GPUs from a task that requests
none."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's result in words, with a `fix` if something is wrong."""

    check: str
    words: str
    fix: str = ""

    def __str__(self) -> str:
        line = f"{'FAIL' if self.fix else 'ok':4}  {self.check:9}  {self.words}"
        return f"{line}; {self.fix}" if self.fix else line


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node: what it reported, and what Ray reports about it.

    Attributes:
        facts: The facts; `None` if the node could not report them.
        error: Why there are no facts.
        n_ray_gpus: The number of GPUs that Ray counts on the node; `None` without Ray.
        clock_offset: Seconds by which the node's clock is ahead of this machine's; 0 without Ray.
        clock_slack: The largest error of `clock_offset`: half the time until the node answered.
    """

    name: str
    facts: NodeFacts | None
    error: str = ""
    n_ray_gpus: int | None = None
    clock_offset: float = 0.0
    clock_slack: float = 0.0


def check_nodes(nodes: Sequence[Node], driver: Environment) -> list[Finding]:
    """One finding for each kind of check. If no node has facts, nothing else is checked."""
    silent = [f"{node.name}: {node.error}" for node in nodes if node.facts is None]
    fix = "install attnsweep in the environment whose `ray start` made the node"
    found = (
        Finding("nodes", ", ".join(silent), fix)
        if silent
        else Finding("nodes", f"{len(nodes)}: {_some([node.name for node in nodes])}")
    )
    answered = [(node, node.facts) for node in nodes if node.facts is not None]
    if not answered:
        return [found]

    def check(name: str, fault_of: Callable[[Node, NodeFacts], str], fine: str, fix: str) -> Finding:
        faults = [f"{node.name}: {fault}" for node, facts in answered if (fault := fault_of(node, facts))]
        return Finding(name, _some(faults), fix) if faults else Finding(name, fine)

    def other_environment(_: Node, facts: NodeFacts) -> str:
        return ", ".join(driver.changes(Environment.model_validate(facts.environment)))

    has_gpus = any(_n_gpus(node, facts) or facts.n_torch_gpus for node, facts in answered)
    libraries = check("libraries", other_environment, "versions as here", "install the same environment there as here")
    gpus = check(
        "GPUs",
        _lost_gpus,
        "PyTorch sees all of them" if has_gpus else "there is none: trainings run on the CPU",
        "install PyTorch's build for CUDA there, or correct CUDA_VISIBLE_DEVICES where Ray starts",
    )
    shm = check(
        "/dev/shm",
        _little_shm,
        f"{LEAST_SHM_BYTES / 1e9:g} GB or more",
        "mount a larger one: docker run --shm-size=1g; in Kubernetes an emptyDir of medium Memory",
    )
    clocks = check(
        "clocks",
        _other_clock,
        f"within {MOST_CLOCK_SECONDS:g} s",
        "synchronize it (chrony, systemd-timesyncd): object stores refuse clocks that are 15 minutes off",
    )
    pack = check(
        "a pack",
        _failed_pack,
        "trained on each device",
        f"repair PyTorch or the GPU's driver there; to test it: python -m {_MODULE}",
    )
    # The machines of a cluster are compared with one another. A single machine is not compared with itself.
    is_cluster = any(node.n_ray_gpus is not None for node in nodes)
    return [found, libraries, gpus, shm, clocks, pack] if is_cluster else [found, gpus, shm, pack]


def this_machine() -> Node:
    """Does not need Ray."""
    return _node(os.uname().nodename, *_ask(sys.executable))


def nodes_of_cluster() -> list[Node]:
    """The head node first, the others by name."""
    import ray.cloudpickle
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # The function is pickled by value, with its code, and not as a reference to this module. A node without attnsweep
    # could not load the reference, and so could not report that attnsweep is missing.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    alive = [node for node in ray.nodes() if node["Alive"]]
    alive.sort(key=lambda node: ("node:__internal_head__" not in node["Resources"], node["NodeManagerHostname"]))
    ask_node = ray.remote(num_cpus=0, max_retries=0, runtime_env={"env_vars": _OWN_DEVICES})(_ask_there)
    began = time.time()
    answers = [
        ask_node.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
        for node in alive
    ]
    ready, _ = ray.wait(answers, num_returns=len(answers), timeout=_SECONDS)
    answered = time.time()
    try:
        return [
            _answer(node, reference if reference in ready else None, began, answered)
            for node, reference in zip(alive, answers, strict=True)
        ]
    finally:
        ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def _answer(node: dict[str, Any], reference: object, began: float, answered: float) -> Node:
    import ray
    from ray.exceptions import RayError

    name, n_ray_gpus = str(node["NodeManagerHostname"]), int(node["Resources"].get("GPU", 0))
    if reference is None:
        return Node(name=name, facts=None, error=f"no answer in {_SECONDS:g} s", n_ray_gpus=n_ray_gpus)
    try:
        text, error = ray.get(reference)  # type: ignore[call-overload]
    except RayError as failure:
        text, error = "", str(failure).strip().splitlines()[-1]
    return _node(name, text, error, n_ray_gpus, began, answered)


def _node(
    name: str, text: str, error: str, n_ray_gpus: int | None = None, began: float = 0.0, answered: float = 0.0
) -> Node:
    if error:
        return Node(name=name, facts=None, error=error, n_ray_gpus=n_ray_gpus)
    facts = NodeFacts(**json.loads(text.splitlines()[-1]))
    middle, slack = (began + answered) / 2, (answered - began) / 2
    offset = facts.clock - middle if n_ray_gpus is not None else 0.0
    return Node(name=name, facts=facts, n_ray_gpus=n_ray_gpus, clock_offset=offset, clock_slack=slack)


def _ask_there() -> tuple[str, str]:
    return _ask(sys.executable)


def _ask(python: str, options: Sequence[str] = ()) -> tuple[str, str]:
    try:
        process = subprocess.run(
            [python, *options, "-m", _MODULE], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    if process.returncode != 0:
        return "", (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
    return process.stdout, ""


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMED] + ([f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []))


def _n_gpus(node: Node, facts: NodeFacts) -> int:
    return facts.n_gpus if node.n_ray_gpus is None else node.n_ray_gpus


def _lost_gpus(node: Node, facts: NodeFacts) -> str:
    by = "the machine has" if node.n_ray_gpus is None else "Ray counts"
    n_there, build = _n_gpus(node, facts), facts.environment["versions"]["torch"]
    return f"{by} {n_there}, PyTorch {build} sees {facts.n_torch_gpus}" if facts.n_torch_gpus < n_there else ""


def _little_shm(_: Node, facts: NodeFacts) -> str:
    return f"{facts.shm_bytes / 1e6:.0f} MB" if facts.shm_bytes < LEAST_SHM_BYTES else ""


def _other_clock(node: Node, _: NodeFacts) -> str:
    if abs(node.clock_offset) <= MOST_CLOCK_SECONDS + node.clock_slack:
        return ""
    return f"{abs(node.clock_offset):.0f} s {'ahead' if node.clock_offset > 0 else 'behind'}"


def _failed_pack(_: Node, facts: NodeFacts) -> str:
    return ", ".join(f"on {device} {error}" for device, error in facts.packs.items() if error)
