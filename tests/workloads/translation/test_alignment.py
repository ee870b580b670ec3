"""The alignment score, compared with counts by hand."""

import torch

from attnsweep.workloads.diagnostics.roles.counts import Looks
from attnsweep.workloads.diagnostics.roles.sentences import Sentences
from attnsweep.workloads.translation.head_scores import Alignment, count_aligned


def test_alignment_counts_by_hand() -> None:
    """Two sentences, the second ends early; key 2 of the first is its EOS."""
    sentences = Sentences(
        queries=torch.tensor([[True, True, True], [True, True, False]]),
        keys=torch.tensor([[True, True, False], [True, False, False]]),
    )
    alignment = Alignment(torch.tensor([[1, 0, 2], [0, -1, 0]]), offset=1)
    attention = torch.tensor(
        [
            [[[0.1, 0.9, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]], [[1.0, 0.0, 0.0]] * 3],
            [[[0.1, 0.9, 0.0], [0.3, 0.2, 0.5], [0.0, 0.0, 1.0]], [[0.0, 1.0, 0.0]] * 3],
        ]
    )
    counts = count_aligned(Looks.of(attention, sentences).strongest, sentences, alignment)
    assert counts.n_queries == 3
    assert counts.hits.tolist() == [2, 2]
    assert counts.by_offset == 1
