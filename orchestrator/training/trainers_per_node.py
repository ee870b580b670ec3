"""Which trainers a cluster's nodes get: pure functions of the nodes and of what the user wants."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

Device: TypeAlias = Literal["auto", "cpu", "cuda"]
_RAYS_DIGITS = 4
"""Ray counts resources in ten thousandths."""


@dataclass(frozen=True)
class Node:
    """A machine of the cluster that is up.

    Attributes:
        id: Ray's.
        host, address: Its name, and where it is on the network.
        n_cpus, n_gpus: What Ray may give away there, in use or not.
    """

    id: str
    host: str
    address: str
    n_cpus: float
    n_gpus: float


@dataclass(frozen=True)
class TrainerShare:
    """The resources of one trainer.

    Attributes:
        device: `cpu` or `cuda`.
        num_cpus, num_gpus: Ray resources; fractions of a GPU share it.
    """

    device: str
    num_cpus: float
    num_gpus: float


class Amount(NamedTuple):
    """Cores and GPUs of one node; a part of either may be shared."""

    n_cpus: float = 0.0
    n_gpus: float = 0.0

    @classmethod
    def of(cls, shares: Iterable[TrainerShare]) -> "Amount":
        """What some trainers have together."""
        taken = [*shares]
        return cls(sum(each.num_cpus for each in taken), sum(each.num_gpus for each in taken))


@dataclass(frozen=True)
class Wanted:
    """How many trainers a sweep wants, and on what.

    Attributes:
        least: Asked of Ray even where they do not fit, so that an autoscaler brings the nodes.
        most: `None` for as many as fit: one per GPU, and one per core of nodes without a GPU.
        device: `cpu` uses cores only, also those of nodes with GPUs; `cuda` GPUs only; `auto` whatever a node has.
    """

    least: int = 1
    most: int | None = None
    device: Device = "auto"


@dataclass(frozen=True)
class Allotment:
    """What each node trains with.

    Attributes:
        by_node: The shares of its trainers, by the node's id; every node is named.
        pending: Trainers that fit nowhere yet.
    """

    by_node: Mapping[str, Sequence[TrainerShare]]
    pending: Sequence[TrainerShare]


def left_by(nodes: Iterable[Node], claims: Mapping[str, Amount], device: Device) -> list[Node]:
    """The nodes as others leave them.

    A node whose GPUs are all claimed is not taken for one without GPUs: a sweep on GPUs does not move to its cores.

    Args:
        nodes: That may be used.
        claims: What others take, by the node's id.
        device: What is wanted.
    """
    left = []
    for node in nodes:
        n_cpus, n_gpus = claims.get(node.id, Amount())
        rest = replace(node, n_cpus=_rest(node.n_cpus, n_cpus), n_gpus=_rest(node.n_gpus, n_gpus))
        if _uses_gpus(node, device) and not _uses_gpus(rest, device):
            rest = replace(rest, n_cpus=0.0)
        left.append(rest)
    return left


def _rest(there: float, taken: float) -> float:
    return max(round(there - taken, _RAYS_DIGITS), 0.0)


def allot(nodes: Sequence[Node], wanted: Wanted, there: Mapping[str, int]) -> Allotment:
    """Shares out trainers; those that are there stay where they are, as far as there is a place for them.

    If exactly so many trainers are wanted, and there are GPUs but too few, trainers share them: 10 trainers on 8 GPUs
    as 2, 2, 1, 1, 1, 1, 1, 1.

    Args:
        nodes: That may be used.
        wanted: What for.
        there: Trainers by the node's id.
    """
    places = {node.id: _n_places(node, wanted.device) for node in nodes}
    n_places = sum(places.values())
    n_wanted = max(wanted.least, n_places if wanted.most is None else min(wanted.most, n_places))
    counts = _spread(places, min(n_wanted, n_places), there)
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


def _spread(places: Mapping[str, int], n_wanted: int, there: Mapping[str, int]) -> dict[str, int]:
    """How many of the wanted trainers each node gets: first where they are, then where most places are free."""
    if n_wanted == sum(places.values()):
        return dict(places)
    counts = {node_id: min(there.get(node_id, 0), n_places) for node_id, n_places in places.items()}
    surplus = sum(counts.values()) - n_wanted
    step = -1 if surplus > 0 else 1
    # The next trainer goes to the node with most free places, or leaves the one with fewest.
    queue = [(step * (counts[node_id] - places[node_id]), node_id) for node_id in places if step > 0 or counts[node_id]]
    heapq.heapify(queue)
    for _ in range(abs(surplus)):
        load, node_id = heapq.heappop(queue)
        counts[node_id] += step
        if step > 0 or counts[node_id]:
            heapq.heappush(queue, (load + 1, node_id))
    return counts


def _in_turns(nodes: Sequence[Node], number: int) -> Iterable[str]:
    """The nodes that so many more trainers go to: a GPU of each node in turn, each GPU equally often."""
    rounds = max(int(node.n_gpus) for node in nodes)
    gpus = [node.id for turn in range(rounds) for node in nodes if turn < int(node.n_gpus)]
    return (gpus[n % len(gpus)] for n in range(number))


def _shares(node: Node, count: int, device: Device) -> list[TrainerShare]:
    if not _uses_gpus(node, device):
        return [TrainerShare("cpu", 1.0, 0.0)] * count
    n_gpus, n_cpus = int(node.n_gpus), min(1.0, node.n_cpus / max(count, 1))
    each, n_with_one_more = divmod(count, n_gpus)
    on_gpus = [each + 1] * n_with_one_more + [each] * (n_gpus - n_with_one_more)
    return [TrainerShare("cuda", n_cpus, 1.0 / sharing) for sharing in on_gpus for _ in range(sharing)]
