"""The checks of nodes: what is wrong with some of them, and how to fix it, as one finding per check."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.tools.doctor.facts import NodeFacts
from attnsweep.orchestrator.tools.doctor.nodes import Node

LEAST_SHM_BYTES = 1_000_000_000
MOST_CLOCK_SECONDS = 60.0
_MOST_NAMED = 4
_CLUSTER_CHECKS = ("code", "clocks")
"""The checks that compare nodes, which are left out for a single machine."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of `attnsweep doctor`: all is well, or a fault with its fix.

    Attributes:
        check: The name of the check.
        words: The state that it found, in words.
        fix: How to fix it; empty if nothing is wrong.
    """

    check: str
    words: str
    fix: str = ""

    def __str__(self) -> str:
        line = f"{'FAIL' if self.fix else 'ok':4}  {self.check:9}  {self.words}"
        return f"{line}; {self.fix}" if self.fix else line


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """A check that `attnsweep doctor` makes on each node of a cluster.

    Attributes:
        name: The name of the check.
        fault: Returns what is wrong with a node, in words; empty if nothing is.
        fine: What to print if nothing is wrong.
        fix: How to fix a fault.
    """

    name: str
    fault: Callable[[Node, NodeFacts], str]
    fine: str
    fix: str

    def find(self, nodes: Sequence[Node]) -> Finding:
        """Makes this check on all nodes that answered; returns one finding for all of them."""
        faults = [
            f"{node.name}: {fault}"
            for node in nodes
            if node.facts is not None and (fault := self.fault(node, node.facts))
        ]
        if not faults:
            return Finding(self.name, self.fine)
        if len(faults) > _MOST_NAMED:
            faults[_MOST_NAMED:] = [f"{len(faults) - _MOST_NAMED} more"]
        return Finding(self.name, ", ".join(faults), self.fix)


def check_nodes(nodes: Sequence[Node], driver: Environment) -> list[Finding]:
    """Makes all checks that concern single nodes. Returns one finding for each check.

    Args:
        nodes: The answers of the nodes.
        driver: The environment of this process, which would be a sweep's driver.
    """
    checks = _checks(driver)
    if all(node.n_ray_gpus is None for node in nodes):
        checks = tuple(check for check in checks if check.name not in _CLUSTER_CHECKS)
    return [_check_answers(nodes), *(check.find(nodes) for check in checks)]


def _check_answers(nodes: Sequence[Node]) -> Finding:
    silent = [f"{node.name}: {node.error}" for node in nodes if node.facts is None]
    if silent:
        fix = "install attnsweep in the environment whose `ray start` made the node"
        return Finding("nodes", ", ".join(silent), fix)
    names = [node.name for node in nodes]
    if len(names) > _MOST_NAMED:
        names[_MOST_NAMED:] = [f"{len(names) - _MOST_NAMED} more"]
    return Finding("nodes", f"{len(nodes)}: {', '.join(names)}")


def _checks(driver: Environment) -> tuple[NodeCheck, ...]:
    def other_environment(node: Node, facts: NodeFacts) -> str:
        del node
        return ", ".join(driver.changes(Environment.model_validate(facts.environment)))

    return (
        NodeCheck("code", other_environment, "versions and code as here", "install the same environment there as here"),
        NodeCheck(
            "GPUs",
            _lost_gpus,
            "PyTorch sees all of them",
            "install PyTorch's build for CUDA there, or correct CUDA_VISIBLE_DEVICES where Ray starts",
        ),
        NodeCheck(
            "/dev/shm",
            _little_shm,
            f"{LEAST_SHM_BYTES / 1e9:g} GB or more",
            "mount a larger one: docker run --shm-size=1g; in Kubernetes an emptyDir of medium Memory",
        ),
        NodeCheck(
            "clocks",
            _other_clock,
            f"within {MOST_CLOCK_SECONDS:g} s",
            "synchronize it (chrony, systemd-timesyncd): object stores refuse clocks that are 15 minutes off",
        ),
        NodeCheck(
            "a pack",
            _failed_pack,
            "trained on each device",
            "repair PyTorch or the GPU's driver there; to test it: python -m attnsweep.orchestrator.tools.doctor.facts",
        ),
    )


def _lost_gpus(node: Node, facts: NodeFacts) -> str:
    n_there = facts.n_gpus if node.n_ray_gpus is None else node.n_ray_gpus
    by = "the machine has" if node.n_ray_gpus is None else "Ray counts"
    build = facts.environment["versions"]["torch"]
    return f"{by} {n_there}, PyTorch {build} sees {facts.n_torch_gpus}" if facts.n_torch_gpus < n_there else ""


def _little_shm(node: Node, facts: NodeFacts) -> str:
    del node
    return f"{facts.shm_bytes / 1e6:.0f} MB" if facts.shm_bytes < LEAST_SHM_BYTES else ""


def _other_clock(node: Node, facts: NodeFacts) -> str:
    del facts
    if abs(node.clock_offset) <= MOST_CLOCK_SECONDS + node.clock_slack:
        return ""
    return f"{abs(node.clock_offset):.0f} s {'ahead' if node.clock_offset > 0 else 'behind'}"


def _failed_pack(node: Node, facts: NodeFacts) -> str:
    del node
    return ", ".join(f"on {device} {error}" for device, error in facts.packs.items() if error)
