"""What GPTs are to predict."""

from itertools import product

import pytest
import torch

from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.gpt.tasks import TASKS, Laws, Sequences
from attnsweep.workloads.testing import defaults
from tests.refusals import refused

STREAMS = Streams(torch.tensor([3, 11]))


def drawn(task: str, n_words: int, B: int, T: int) -> tuple[Laws, Sequences]:
    laws = TASKS[task].laws(STREAMS, n_words, None)
    return laws, TASKS[task].sequences(STREAMS, "batch", laws, n_words, (B, T), 0)


def test_targets_are_read_from_the_table() -> None:
    laws, found = drawn("bigram_table", 4, 50, 6)
    for lane, b, t in product(range(2), range(50), range(1, 6)):
        previous, current = found.token_LBT[lane, b, t - 1 : t + 1]
        assert found.target_LBT[lane, b, t] == laws["table"][lane, previous, current]
    assert not found.counts_LBT[..., 0].any()
    assert found.counts_LBT[..., 1:].all()
    assert not torch.equal(laws["table"][0], laws["table"][1])


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
        ({"task": "induction", "n_tokens": 7}, "n_tokens"),
        ({"task": "induction", "n_tokens": 16}, "n_words"),
        ({"n_words": 3}, "n_words"),
        ({"n_words": 65}, "n_words"),
        ({"task": "text"}, "corpus"),
        ({"n_heads": 3}, "n_heads"),
        ({"qk": "merged", "qk_rank": 4}, "qk_rank"),
    ],
)
def test_what_does_not_fit_is_refused(values: dict[str, int | str], subject: str) -> None:
    with refused(subject, SpecError):
        defaults(GPTWorkload(), **values)
