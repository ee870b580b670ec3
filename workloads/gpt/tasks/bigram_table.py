"""The task `bigram_table`: independent uniform tokens, whose targets a table looks up by token and previous token.

Axes: L lane, B sequence, T token, P previous token, V current token or target.
"""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.gpt.tasks.task import Laws, Sequences, Task, check_at_least_four, nats


class BigramTable(Task):
    """Targets y_i = table(x_(i-1), x_i), with a random table per training. Models must attend to the previous token."""

    name = "bigram_table"
    summary = "targets that a random table reads from the current and the previous token"

    def check(self, n_words: int, n_tokens: int, corpus: str | None) -> None:
        super().check(n_words, n_tokens, corpus)
        check_at_least_four(self.name, n_words)

    def laws(self, streams: Streams, n_words: int, contrast_L: Tensor, corpus: str | None) -> Laws:
        """Draws `table` (L, P, V) int64: the target for each pair of previous and current token."""
        del contrast_L, corpus
        return {"table": streams.integers("task/table", (n_words, n_words), n_words)}

    def sequences(
        self, streams: Streams, name: str, laws: Laws, n_words: int, shape: tuple[int, int], step: int
    ) -> Sequences:
        token_LBT = streams.integers(name, shape, n_words, step)
        previous_LBT = token_LBT.roll(1, -1)
        pair_LN = (previous_LBT * n_words + token_LBT).flatten(1)
        target_LBT = laws["table"].flatten(1).gather(1, pair_LN).view(token_LBT.shape)
        # The first token of a sequence does not count, because no token precedes it.
        counts_LBT = (torch.arange(shape[1], device=token_LBT.device) > 0).expand(token_LBT.shape)
        return Sequences(token_LBT, target_LBT, counts_LBT)

    def reference_nats(self, laws: Laws, n_words: int, drawn: Sequences) -> dict[str, Tensor]:
        current_LVV = _given_current(laws["table"], n_words)
        index_LBT = drawn.token_LBT * n_words + drawn.target_LBT
        return {
            "constant": nats(current_LVV.mean(1), drawn.target_LBT),
            "current": nats(current_LVV.flatten(1), index_LBT),
            "optimum": torch.zeros_like(index_LBT, dtype=torch.float64),
        }


def _given_current(table_LPV: Tensor, n_words: int) -> Tensor:
    """Returns the probabilities of the target given the current token alone, (L, V, V)."""
    return one_hot(table_LPV, n_words).double().mean(1)
