"""Records the cluster's nodes for a sweep: which join and leave, and which cannot train."""

import re
from collections.abc import Mapping, Sequence

from attnsweep.orchestrator.training.trainers_per_node import Node

MAX_STARTS = 3
"""How often trainers may fail to start on a node without one starting in between."""
_MOST_CHARACTERS, _MOST_NAMED = 300, 5
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_RAISED = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*$", re.MULTILINE)
_DIED = re.compile(r"^The actor is dead because .*?(?=\. |$)", re.MULTILINE)


class NodeRecord:
    """Keeps a record of the cluster's nodes: which join and leave, how often trainers fail to start there, and which
    are given up.

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
        """Records which nodes may be used now, by id. The user is told about nodes that joined or left."""
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
        """Resets a node's count of failed starts, because a trainer has started there."""
        self._n_failed.pop(node_id, None)

    def failed(self, node: Node, n_up: int, why: str) -> None:
        """Counts a trainer that did not start on a node. After `MAX_STARTS` failures the node is given up, or gets no
        further trainers.

        Args:
            node: The node, which is up.
            n_up: Number of trainers that have started on the node.
            why: Ray's error text.
        """
        self._n_failed[node.id] = self._n_failed.get(node.id, 0) + 1
        if self._n_failed[node.id] < MAX_STARTS:
            return
        self.started(node.id)
        if n_up == 0:
            self._give_up(node.id, node.host, f"no trainer starts there: {cause_of(why)}")
        else:
            self.limits[node.id] = n_up
            self._notices.append(
                f"host {node.host} trains with {n_up} trainers, because no other starts there: {cause_of(why)}"
            )

    def differs(self, node_id: str, host: str, changes: Sequence[str]) -> None:
        """Gives up a node because its environment differs from the driver's."""
        self._give_up(node_id, host, f"its versions or code differ from the driver's: {'; '.join(changes)}")

    def cannot_compile(self, node_id: str, host: str, why: str) -> None:
        """Gives up a node because it cannot compile the programs of the sweep."""
        self._give_up(node_id, host, why)

    def wait_for(self, n_trainers: int) -> None:
        """Records how many trainers wait for a node to join."""
        if n_trainers > self._n_awaited:
            self._notices.append(
                f"{n_trainers} more trainers are requested from Ray; they start when nodes with room for them join"
            )
        self._n_awaited = n_trainers

    def notices(self) -> list[str]:
        """Returns messages for the user about nodes since the last call, one line each."""
        notices, self._notices = self._notices, []
        return notices

    def in_words(self) -> str:
        """Explains for each given-up node why it was given up, as one text."""
        return "; ".join(f"host {host}: {why}" for host, why in dict.fromkeys(self.refused.values()))

    def _give_up(self, node_id: str, host: str, why: str) -> None:
        if node_id not in self.refused:
            self.refused[node_id] = host, why
            self._notices.append(f"host {host} is not used: {why}")


def cause_of(why: str) -> str:
    """Returns one line about why a trainer did not start: the end of its traceback, or how its process died."""
    text = _COLOURS.sub("", why)
    lines = _RAISED.findall(text) or _DIED.findall(text) or [" ".join(text.split())]
    return lines[-1] if len(lines[-1]) <= _MOST_CHARACTERS else f"{lines[-1][:_MOST_CHARACTERS]} ..."
