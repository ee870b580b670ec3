"""Distributes a sweep's trainers over the nodes of a cluster: pure functions of the nodes and of the user's wishes."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

Device: TypeAlias = Literal["auto", "cpu", "cuda"]
_RAYS_DIGITS = 4
"""Ray counts resources in ten-thousandths."""


@dataclass(frozen=True)
class Node:
    """A machine of the cluster that is up, with its numbers of cores and GPUs.

    Attributes:
        id: Ray's id of the node.
        host, address: The node's name, and its network address.
        n_cpus, n_gpus: Resources that Ray may assign on the node, in use or not.
    """

    id: str
    host: str
    address: str
    n_cpus: float
    n_gpus: float


@dataclass(frozen=True)
class TrainerShare:
    """The resources of one trainer: cores and GPUs, possibly fractions of them.

    Attributes:
        device: `cpu` or `cuda`.
        num_cpus, num_gpus: Ray resources. Trainers with a fraction of a GPU share it.
    """

    device: str
    num_cpus: float
    num_gpus: float


class Amount(NamedTuple):
    """A number of cores and GPUs of one node. Fractions are possible."""

    n_cpus: float = 0.0
    n_gpus: float = 0.0

    @classmethod
    def of(cls, shares: Iterable[TrainerShare]) -> "Amount":
        """Returns the sum of the resources of several trainers."""
        all_shares = [*shares]
        return cls(sum(share.num_cpus for share in all_shares), sum(share.num_gpus for share in all_shares))


@dataclass(frozen=True)
class Wanted:
    """How many trainers a sweep wants, and on which devices.

    Attributes:
        least: Number that is requested from Ray even if fewer fit, so that an autoscaler adds nodes.
        most: The largest number; `None` for as many as fit: one per GPU, and one per core of nodes without a GPU.
        device: `cpu` uses only cores, also of nodes with GPUs; `cuda` uses only GPUs; `auto` uses what each node has.
    """

    least: int = 1
    most: int | None = None
    device: Device = "auto"


@dataclass(frozen=True)
class Allotment:
    """The result of distributing trainers: those of each node, and those that fit on no node.

    Attributes:
        by_node: The shares of the node's trainers, by the node's id, for every node.
        pending: Shares of trainers that fit on no node yet.
    """

    by_node: Mapping[str, Sequence[TrainerShare]]
    pending: Sequence[TrainerShare]


def left_by(nodes: Iterable[Node], claims: Mapping[str, Amount], device: Device) -> list[Node]:
    """Returns the nodes with the resources that are left when other sweeps have taken what they claim.

    A node whose GPUs are all claimed does not count as a node without GPUs: a sweep on GPUs does not move to its cores.

    Args:
        nodes: The nodes that may be used.
        claims: Resources that other sweeps take, by the node's id.
        device: The device that the sweep wants.
    """
    remaining = []
    for node in nodes:
        n_cpus, n_gpus = claims.get(node.id, Amount())
        reduced = replace(node, n_cpus=_minus(node.n_cpus, n_cpus), n_gpus=_minus(node.n_gpus, n_gpus))
        if _uses_gpus(node, device) and not _uses_gpus(reduced, device):
            reduced = replace(reduced, n_cpus=0.0)
        remaining.append(reduced)
    return remaining


def _minus(available: float, taken: float) -> float:
    return max(round(available - taken, _RAYS_DIGITS), 0.0)


def allot(nodes: Sequence[Node], wanted: Wanted, n_up_by_node: Mapping[str, int]) -> Allotment:
    """Distributes trainers over the nodes. Trainers that are up stay where they are, as long as their node has a place
    for them.

    If an exact number of trainers is wanted and there are too few GPUs, trainers share them: 10 trainers on 8 GPUs as
    2, 2, 1, 1, 1, 1, 1, 1.

    Args:
        nodes: The nodes that may be used.
        wanted: The trainers that the sweep wants.
        n_up_by_node: Number of trainers that are up, by the node's id.
    """
    places = {node.id: _n_places(node, wanted.device) for node in nodes}
    n_places = sum(places.values())
    n_wanted = max(wanted.least, n_places if wanted.most is None else min(wanted.most, n_places))
    counts = _spread(places, min(n_wanted, n_places), n_up_by_node)
    n_left = n_wanted - n_places
    with_gpus = [node for node in nodes if _uses_gpus(node, wanted.device)]
    if n_left > 0 and with_gpus and wanted.least == wanted.most:
        for node_id in _in_turns(with_gpus, n_left):
            counts[node_id] += 1
        n_left = 0
    by_node = {node.id: _shares(node, counts[node.id], wanted.device) for node in nodes}
    on_gpu = wanted.device == "cuda" or bool(with_gpus)
    pending = TrainerShare("cuda", 1.0, 1.0) if on_gpu else TrainerShare("cpu", 1.0, 0.0)
    return Allotment(by_node, [pending] * max(n_left, 0))


def _uses_gpus(node: Node, device: Device) -> bool:
    return device != "cpu" and node.n_gpus >= 1


def _n_places(node: Node, device: Device) -> int:
    if _uses_gpus(node, device):
        return int(node.n_gpus)
    return 0 if device == "cuda" else int(node.n_cpus)


def _spread(places: Mapping[str, int], n_wanted: int, n_up_by_node: Mapping[str, int]) -> dict[str, int]:
    """Returns the number of trainers of each node. Trainers that are up keep their node; others go where most places
    are free."""
    if n_wanted == sum(places.values()):
        return dict(places)
    counts = {node_id: min(n_up_by_node.get(node_id, 0), n_places) for node_id, n_places in places.items()}
    surplus = sum(counts.values()) - n_wanted
    step = -1 if surplus > 0 else 1
    # A further trainer goes to the node with the most free places. A trainer too many leaves the node with the fewest
    # free places.
    queue = [(step * (counts[node_id] - places[node_id]), node_id) for node_id in places if step > 0 or counts[node_id]]
    heapq.heapify(queue)
    for _ in range(abs(surplus)):
        load, node_id = heapq.heappop(queue)
        counts[node_id] += step
        if step > 0 or counts[node_id]:
            heapq.heappush(queue, (load + 1, node_id))
    return counts


def _in_turns(nodes: Sequence[Node], number: int) -> Iterable[str]:
    """Yields the node for each of `number` additional trainers. The GPUs take turns, so that every GPU is used equally
    often."""
    rounds = max(int(node.n_gpus) for node in nodes)
    gpus = [node.id for turn in range(rounds) for node in nodes if turn < int(node.n_gpus)]
    return (gpus[n % len(gpus)] for n in range(number))


def _shares(node: Node, count: int, device: Device) -> list[TrainerShare]:
    if not _uses_gpus(node, device):
        return [TrainerShare("cpu", 1.0, 0.0)] * count
    n_gpus, n_cpus = int(node.n_gpus), min(1.0, node.n_cpus / max(count, 1))
    n_per_gpu, n_with_one_more = divmod(count, n_gpus)
    on_gpus = [n_per_gpu + 1] * n_with_one_more + [n_per_gpu] * (n_gpus - n_with_one_more)
    return [TrainerShare("cuda", n_cpus, 1.0 / sharing) for sharing in on_gpus for _ in range(sharing)]
