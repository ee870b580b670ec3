"""Which trainers each node gets."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnsweep.orchestrator.training.nodes import (
    Allotment,
    Node,
    TrainerShare,
    Wanted,
    allot,
)

CPU, GPU = TrainerShare("cpu", 1.0, 0.0), TrainerShare("cuda", 1.0, 1.0)


def _node(name: str, n_cpus: float, n_gpus: float = 0.0) -> Node:
    return Node(name, f"host-{name}", f"address-{name}", n_cpus, n_gpus)


def _counts(allotment: Allotment) -> dict[str, int]:
    return {node: len(shares) for node, shares in allotment.by_node.items()}


@pytest.mark.parametrize(
    ("nodes", "wanted", "by_node", "pending"),
    [
        # By default one trainer per GPU, and per core of nodes without any.
        (("a", 16, 2, "b", 3, 0, "head", 0, 0), Wanted(), {"a": [GPU] * 2, "b": [CPU] * 3, "head": []}, []),
        # A cluster without a place is asked for one.
        ((), Wanted(), {}, [CPU]),
        (("head", 0, 0), Wanted(), {"head": []}, [CPU]),
        # A device says what counts.
        (("a", 4, 2, "b", 3, 0), Wanted(device="cpu"), {"a": [CPU] * 4, "b": [CPU] * 3}, []),
        (("a", 4, 2, "b", 3, 0), Wanted(device="cuda"), {"a": [GPU] * 2, "b": []}, []),
        # GPUs that will come are not replaced by cores.
        (("head", 4, 0), Wanted(2, 2, "cuda"), {"head": []}, [GPU] * 2),
        # More trainers than places wait for nodes.
        (("a", 2, 0), Wanted(5, 5), {"a": [CPU] * 2}, [CPU] * 3),
        (("a", 2, 0), Wanted(3, 8), {"a": [CPU] * 2}, [CPU]),
        (("a", 9, 0), Wanted(3, 8), {"a": [CPU] * 8}, []),
        # With a range, GPUs are not shared: more of them may come.
        (("a", 8, 2), Wanted(3, 4), {"a": [GPU] * 2}, [GPU]),
        # Trainers on GPUs share few cores.
        (("a", 2, 1), Wanted(4, 4), {"a": [TrainerShare("cuda", 0.5, 0.25)] * 4}, []),
    ],
)
def test_trainers_of_each_node(
    nodes: tuple[Any, ...], wanted: Wanted, by_node: dict[str, list[TrainerShare]], pending: list[TrainerShare]
) -> None:
    found = allot([_node(*nodes[at : at + 3]) for at in range(0, len(nodes), 3)], wanted, {})
    assert found == Allotment(by_node, pending)


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ({}, {"a": 2, "b": 2}),
        ({"a": 4}, {"a": 4, "b": 0}),
        ({"a": 4, "b": 1}, {"a": 3, "b": 1}),
        ({"a": 1}, {"a": 2, "b": 2}),
    ],
)
def test_fewer_trainers_than_places_spread_and_stay_where_they_are(
    there: Mapping[str, int], expected: Mapping[str, int]
) -> None:
    assert _counts(allot([_node("a", 4), _node("b", 4)], Wanted(4, 4), there)) == expected


NODES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=6)


@pytest.mark.slow
@given(NODES, st.integers(1, 40), st.integers(0, 40) | st.none(), st.sampled_from(["auto", "cpu", "cuda"]), st.data())
def test_no_node_gives_more_than_it_has(
    sizes: list[tuple[int, int]], least: int, more: int | None, device: str, data: st.DataObject
) -> None:
    nodes = [_node(str(n), n_cpus, n_gpus) for n, (n_cpus, n_gpus) in enumerate(sizes)]
    there = data.draw(st.dictionaries(st.sampled_from([node.id for node in nodes] or ["gone"]), st.integers(0, 9)))
    most = None if more is None else least + more
    found = allot(nodes, Wanted(least, most, device), there)  # type: ignore[arg-type]
    assert found.by_node.keys() == {node.id for node in nodes}
    for node in nodes:
        shares = found.by_node[node.id]
        assert sum(share.num_gpus for share in shares) <= node.n_gpus + 1e-9
        assert sum(share.num_cpus for share in shares) <= node.n_cpus + 1e-9
        assert len(Counter(share.device for share in shares)) <= 1
    n_trainers = sum(_counts(found).values()) + len(found.pending)
    assert n_trainers >= least
    assert most is None or n_trainers <= most
    # Settled once: asked again, nothing moves.
    assert _counts(allot(nodes, Wanted(least, most, device), _counts(found))) == _counts(found)  # type: ignore[arg-type]
