"""Distributes trainers over the nodes of a cluster."""

import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Device: TypeAlias = Literal["auto", "cpu", "cuda"]
MAX_STARTS = 3
"""How many trainers in a row may fail to start on a node."""
_MOST_CHARACTERS, _MOST_NAMED = 300, 5
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_RAISED = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*$", re.MULTILINE)
_DIED = re.compile(r"^The actor is dead because .*?(?=\. |$)", re.MULTILINE)


@dataclass(frozen=True)
class Node:
    """A machine that is up, with what Ray may assign on it, in use or not."""

    id: str
    host: str
    address: str
    n_cpus: float
    n_gpus: float


@dataclass(frozen=True)
class TrainerShare:
    """What one trainer gets. Trainers with a fraction of a GPU share it."""

    device: str
    num_cpus: float
    num_gpus: float


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
    """Which trainers each node gets; `pending` ones fit on no node yet.

    Attributes:
        by_node: The shares of the node's trainers, by the node's id, for every node.
    """

    by_node: Mapping[str, Sequence[TrainerShare]]
    pending: Sequence[TrainerShare]


def allot(nodes: Sequence[Node], wanted: Wanted, n_up_by_node: Mapping[str, int]) -> Allotment:
    """Distributes trainers over the nodes. Running trainers stay on their node as long as it has room for them.

    If an exact number of trainers is wanted and there are too few GPUs, trainers share GPUs. For example, 10 trainers
    on 8 GPUs: two GPUs get 2 trainers each, the others 1.
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
    if n_wanted == sum(places.values()):
        return dict(places)
    counts = {node_id: min(n_up_by_node.get(node_id, 0), n_places) for node_id, n_places in places.items()}
    surplus = sum(counts.values()) - n_wanted
    step = -1 if surplus > 0 else 1
    # If trainers are missing, each new one goes to the node with the most free places (resources for one trainer). If
    # there are too many trainers, those on the nodes with the fewest free places end first.
    queue = [(step * (counts[node_id] - places[node_id]), node_id) for node_id in places if step > 0 or counts[node_id]]
    heapq.heapify(queue)
    for _ in range(abs(surplus)):
        load, node_id = heapq.heappop(queue)
        counts[node_id] += step
        if step > 0 or counts[node_id]:
            heapq.heappush(queue, (load + 1, node_id))
    return counts


def _in_turns(nodes: Sequence[Node], number: int) -> Iterable[str]:
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


class NodeRecord:
    """Which nodes join and leave, how often trainers fail to start on each, and which are given up.

    Attributes:
        refused: The host and the reason, for each node that is given up, by id.
        limits: The number of trainers of a node on which no more can start, by id.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] | None = None
        self.refused: dict[str, tuple[str, str]] = {}
        self.limits: dict[str, int] = {}
        self._n_failed: dict[str, int] = {}
        self._n_awaited = 0
        self._notices: list[str] = []

    def seen(self, nodes: Mapping[str, Node]) -> None:
        """Takes the nodes that may be used now, with a notice of those that joined or left."""
        if self._nodes is not None:
            self._tell("joined", [node for node_id, node in nodes.items() if node_id not in self._nodes])
            self._tell("left", [node for node_id, node in self._nodes.items() if node_id not in nodes])
        self._nodes = dict(nodes)

    def _tell(self, event: str, nodes: Sequence[Node]) -> None:
        if nodes:
            names = [node.host for node in nodes[:_MOST_NAMED]]
            if len(nodes) > _MOST_NAMED:
                names.append(f"{len(nodes) - _MOST_NAMED} more")
            self._notices.append(f"{event} the cluster: {', '.join(names)}")

    def started(self, node_id: str) -> None:
        self._n_failed.pop(node_id, None)

    def failed(self, node: Node, n_up: int, why: str) -> None:
        """Counts a failed start of a trainer on a node. After `MAX_STARTS` failures, the node gets no further trainers;
        if no trainer runs there, it is given up."""
        self._n_failed[node.id] = self._n_failed.get(node.id, 0) + 1
        if self._n_failed[node.id] < MAX_STARTS:
            return
        self.started(node.id)
        if n_up == 0:
            self.give_up(node.id, node.host, f"no trainer starts there: {cause_of(why)}")
        else:
            self.limits[node.id] = n_up
            self._notices.append(
                f"host {node.host} trains with {n_up} trainers, because no other starts there: {cause_of(why)}"
            )

    def wait_for(self, n_trainers: int) -> None:
        if n_trainers > self._n_awaited:
            self._notices.append(
                f"{n_trainers} more trainers are requested from Ray; they start when nodes with room for them join"
            )
        self._n_awaited = n_trainers

    def notices(self) -> list[str]:
        notices, self._notices = self._notices, []
        return notices

    def in_words(self) -> str:
        return "; ".join(f"host {host}: {why}" for host, why in dict.fromkeys(self.refused.values()))

    def give_up(self, node_id: str, host: str, why: str) -> None:
        if node_id not in self.refused:
            self.refused[node_id] = host, why
            self._notices.append(f"host {host} is not used: {why}")


def cause_of(why: str) -> str:
    """The end of its traceback, or how its process ended."""
    text = _COLOURS.sub("", why)
    lines = _RAISED.findall(text) or _DIED.findall(text) or [" ".join(text.split())]
    return lines[-1] if len(lines[-1]) <= _MOST_CHARACTERS else f"{lines[-1][:_MOST_CHARACTERS]} ..."
