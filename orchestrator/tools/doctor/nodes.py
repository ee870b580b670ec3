"""Collects the facts of nodes: of this machine, or of each node of a Ray cluster."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from attnsweep.orchestrator.tools.doctor.facts import NodeFacts

_MODULE = "attnsweep.orchestrator.tools.doctor.facts"
_SECONDS = 180.0
_OWN_DEVICES = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
"""Environment variables of the tasks. This one keeps Ray from hiding the GPUs from a task that requests none."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node of a cluster: the facts that it reported, and what Ray reports about it.

    Attributes:
        name: The node's name in messages.
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


def this_machine() -> list[Node]:
    """Returns the facts of this machine in a list, without Ray."""
    text, error = _ask(sys.executable)
    return [_node(os.uname().nodename, text, error)]


def nodes_of_cluster() -> list[Node]:
    """Returns every node of the cluster that this process is connected to: the head node first, the others by name."""
    import ray.cloudpickle
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # The function is pickled by value: a node without attnsweep could not unpickle a reference to it, and so could not
    # report that attnsweep is missing.
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


def _answer(node: "dict[str, object]", reference: object, began: float, answered: float) -> Node:
    import ray
    from ray.exceptions import RayError

    name, resources = str(node["NodeManagerHostname"]), node["Resources"]
    n_ray_gpus = int(resources.get("GPU", 0)) if isinstance(resources, dict) else 0
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
    """Asks a new Python process on this node for its facts. Returns them as JSON, and an error message; one of the two
    is empty."""
    try:
        process = subprocess.run(
            [python, *options, "-m", _MODULE], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    if process.returncode != 0:
        return "", (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
    return process.stdout, ""
