"""The task `induction`: a random segment of different tokens is repeated, so its second round follows from its first.

Axes: L lane, B sequence, T token, V word.
"""

import math

import torch
from torch import Tensor

from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.gpt.tasks.task import Laws, Sequences, Task

_SHORTEST_SHARE, _LONGEST_SHARE = 4, 2
"""A segment has between 1/4 and 1/2 of the sequence's tokens: the divisors for the shortest and the longest segment."""


class Induction(Task):
    """Sequences that repeat a random segment. The segment's length is drawn for each sequence.

    Therefore no fixed offset finds the token to copy. One head can attend to the previous token and write it to each
    token. A second head, an induction head, then finds the token whose predecessor equals the current token, and copies
    it (Olsson et al. 2022).
    """

    name = "induction"
    summary = "the next token of a repeated random segment"
    reference_names = ("constant", "current", "context")

    def check(self, n_words: int, n_tokens: int, corpus: str | None) -> None:
        super().check(n_words, n_tokens, corpus)
        if n_tokens < 2 * _SHORTEST_SHARE:
            raise SpecError(
                "n_tokens",
                given=n_tokens,
                expected=f"at least {2 * _SHORTEST_SHARE} tokens with task=induction",
                fix="raise n_tokens",
            )
        if n_words < n_tokens // _LONGEST_SHARE:
            raise SpecError(
                "n_words",
                given=n_words,
                expected=f"at least {n_tokens // _LONGEST_SHARE} words with task=induction, because the tokens of a"
                " segment all differ",
                fix="raise n_words, or lower n_tokens",
            )

    def sequences(
        self, streams: Streams, name: str, laws: Laws, n_words: int, shape: tuple[int, int], step: int
    ) -> Sequences:
        del laws
        B, T = shape
        shortest, longest = _segment_lengths(T)
        word_LBV = streams.uniform(f"{name}/segment", (B, n_words), step).argsort(-1)
        length_LB1 = shortest + streams.integers(f"{name}/length", (B, 1), longest - shortest + 1, step)
        position_T = torch.arange(T + 1, device=word_LBV.device)
        text_LBT = word_LBV.gather(-1, position_T % length_LB1)
        return Sequences(text_LBT[..., :-1], text_LBT[..., 1:], position_T[:-1] >= length_LB1)

    def reference_nats(self, laws: Laws, n_words: int, drawn: Sequences) -> dict[str, Tensor]:
        """Returns -log p of the targets under each reference predictor. The predictor `context` is uniform over the
        segment's tokens except the current one, and ignores their order.
        """
        del laws
        # Predictions count from the end of the segment on, so the tokens that do not count are the segment.
        length_LB1 = (~drawn.counts_LBT).sum(-1, keepdim=True).double()
        zeros = torch.zeros_like(drawn.target_LBT, dtype=torch.float64)
        return {
            "constant": zeros + math.log(n_words),
            "current": zeros + math.log(n_words - 1),
            "context": zeros + (length_LB1 - 1.0).log(),
            "optimum": zeros,
        }

    def needs_previous(self, drawn: Sequences) -> Tensor:
        """Returns the tokens of the segment's first round, where a previous-token head writes what induction heads
        read.
        """
        has_previous_T = torch.arange(drawn.token_LBT.shape[-1], device=drawn.token_LBT.device) > 0
        return ~drawn.counts_LBT & has_previous_T


def _segment_lengths(n_tokens: int) -> tuple[int, int]:
    return n_tokens // _SHORTEST_SHARE, n_tokens // _LONGEST_SHARE
