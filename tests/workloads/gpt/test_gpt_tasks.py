"""What GPTs are to predict: the sequences follow their laws, and entropies are exact.

Axes: L lane, B sequence, T token, V word.
"""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.gpt.tasks import TASKS, Laws, Sequences
from attnsweep.workloads.testing import defaults
from tests.refusals import refused


def chain_entropies(laws: Laws) -> tuple[Tensor, Tensor, Tensor]:
    """H(Y), H(Y | current token) and the entropy rate, (L,) in nats."""
    V = laws["next"].shape[-1]
    joint_LVVV = (laws["pair"].unsqueeze(-1) * laws["next"]).unflatten(1, (V, V))
    joint_LVV, one_LV = joint_LVVV.sum(1), joint_LVVV.sum((2, 3))
    given_current = _entropy(joint_LVV.flatten(1)) - _entropy(joint_LVV.sum(-1))
    return _entropy(one_LV), given_current, (laws["pair"] * _entropy(laws["next"])).sum(1)


def _entropy(law: Tensor) -> Tensor:
    return -torch.xlogy(law, law).sum(-1)


STREAMS = Streams(torch.tensor([3, 11]))


def drawn(task: str, n_words: int, B: int, T: int, contrast: float = 1.5) -> tuple[Laws, Sequences]:
    laws = TASKS[task].laws(STREAMS, n_words, torch.full((2,), contrast, dtype=torch.float64), None)
    return laws, TASKS[task].sequences(STREAMS, "batch", laws, n_words, (B, T), 0)


def mean_nats(task: str, laws: Laws, n_words: int, sequences: Sequences) -> dict[str, Tensor]:
    counts = sequences.counts_LBT.double()
    nats = TASKS[task].reference_nats(laws, n_words, sequences)
    return {name: torch.where(counts > 0, value, 0.0).sum((1, 2)) / counts.sum((1, 2)) for name, value in nats.items()}


def test_targets_are_read_from_the_table() -> None:
    laws, found = drawn("bigram_table", 4, 50, 6)
    for lane, b, t in product(range(2), range(50), range(1, 6)):
        previous, current = found.token_LBT[lane, b, t - 1 : t + 1]
        assert found.target_LBT[lane, b, t] == laws["table"][lane, previous, current]
    assert not found.counts_LBT[..., 0].any()
    assert found.counts_LBT[..., 1:].all()
    assert not torch.equal(laws["table"][0], laws["table"][1])


def test_entropies_of_a_chain_are_those_of_its_stationary_law() -> None:
    V = 3
    laws, _ = drawn("order_2_chain", V, 1, 3)
    following, pair = (laws[name][0].tolist() for name in ("next", "pair"))
    step = {(a, b, c): pair[a * V + b] * following[a * V + b][c] for a, b, c in product(range(V), repeat=3)}
    for b, c in product(range(V), repeat=2):
        assert sum(step[a, b, c] for a in range(V)) == pytest.approx(pair[b * V + c], abs=1e-14)
    one = [sum(pair[a * V + b] for a in range(V)) for b in range(V)]
    h = -sum(p * math.log(p) for p in one)
    joint = {(b, c): sum(step[a, b, c] for a in range(V)) for b, c in product(range(V), repeat=2)}
    h_current = -sum(p * math.log(p / one[b]) for (b, _), p in joint.items())
    rate = -sum(p * math.log(following[a * V + b][c]) for (a, b, c), p in step.items())
    assert [each[0].item() for each in chain_entropies(laws)] == pytest.approx([h, h_current, rate], abs=1e-13)
    assert rate < h_current < h


def test_a_chain_is_drawn_from_its_law() -> None:
    V = 3
    laws, found = drawn("order_2_chain", V, 3000, 5)
    levels = mean_nats("order_2_chain", laws, V, found)
    for name, exact in zip(("constant", "current", "optimum"), chain_entropies(laws), strict=True):
        torch.testing.assert_close(levels[name], exact, rtol=0, atol=0.03)
    assert torch.equal(found.token_LBT[..., 1:], found.target_LBT[..., :-1])
    pairs = (found.token_LBT[0, :, 0] * V + found.token_LBT[0, :, 1]).bincount(minlength=V * V) / 3000
    torch.testing.assert_close(pairs.double(), laws["pair"][0], rtol=0, atol=0.04)


def test_segments_are_repeated_and_their_tokens_differ() -> None:
    _, found = drawn("induction", 9, 200, 16)
    lengths = set()
    for lane, b in product(range(2), range(200)):
        tokens, targets = found.token_LBT[lane, b].tolist(), found.target_LBT[lane, b].tolist()
        length = int((~found.counts_LBT[lane, b]).sum())
        lengths.add(length)
        assert len(set(tokens[:length])) == length
        every = [*tokens, targets[-1]]
        assert all(every[t] == every[t - length] for t in range(length, 17))
        assert targets[:-1] == tokens[1:]
    assert lengths == {4, 5, 6, 7, 8}


@pytest.mark.parametrize(
    ("values", "subject"),
    [
        ({"task": "order_2_chain", "n_words": 17}, "n_words"),
        ({"task": "induction", "n_tokens": 7}, "n_tokens"),
        ({"task": "induction", "n_tokens": 16}, "n_words"),
        ({"n_words": 3}, "n_words"),
        ({"task": "order_2_chain", "n_words": 2}, "n_words"),
        ({"n_words": 65}, "n_words"),
        ({"task": "text"}, "corpus"),
        ({"n_heads": 3}, "n_heads"),
        ({"qk": "merged", "qk_rank": 4}, "qk_rank"),
    ],
)
def test_what_does_not_fit_is_refused(values: dict[str, int | str], subject: str) -> None:
    with refused(subject, SpecError):
        defaults(GPTWorkload(), **values)
