"""The task `text`: the next token of a user's text. Axes: L lane, B sequence, T token, N token of a part of the
text."""

import torch
from torch import Tensor

from attnsweep.workloads.diagnostics.ngrams import CountedLaws
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.gpt.tasks.task import Laws, Sequences, Task
from attnsweep.workloads.gpt.text import read_text


class OwnText(Task):
    """Excerpts of the user's text at random places, from the training part for steps and else from the held-out part.

    The reference predictors are counted on the training part. The entropy of a text is not known, so there is no
    optimum.
    """

    name = "text"
    summary = "the next character or word of a text of yours"

    def check(self, n_words: int, n_tokens: int, corpus: str | None) -> None:
        del n_words
        if corpus is None:
            raise SpecError(
                "corpus",
                given=corpus,
                expected="the path of a text corpus, which task=text needs",
                fix="prepare a corpus with: attnsweep prepare-corpus FILE --unit characters --out TEXT.parquet",
            )
        text = read_text(corpus)
        least = min(len(text.train), len(text.held_out))
        if n_tokens >= least:
            raise SpecError(
                "n_tokens",
                given=n_tokens,
                expected=f"fewer than {least} tokens, the length of the smaller part of {corpus}",
                fix="lower n_tokens, or give a longer text",
            )

    def laws(self, streams: Streams, n_words: int, contrast_L: Tensor, corpus: str | None) -> Laws:
        """Returns the text's parts `train` and `held_out`, (N,) int64 each, which all lanes share."""
        del streams, n_words
        assert corpus is not None, "refused by `check`"
        text = read_text(corpus)
        device = contrast_L.device
        return {
            "train": torch.from_numpy(text.train).to(device),
            "held_out": torch.from_numpy(text.held_out).to(device),
        }

    def sequences(
        self, streams: Streams, name: str, laws: Laws, n_words: int, shape: tuple[int, int], step: int
    ) -> Sequences:
        del n_words
        B, T = shape
        part_N = laws["train" if name == "batch" else "held_out"]
        first_LB1 = streams.integers(name, (B, 1), len(part_N) - T, step)
        window_LBT = part_N[first_LB1 + torch.arange(T + 1, device=part_N.device)]
        token_LBT = window_LBT[..., :-1]
        return Sequences(token_LBT, window_LBT[..., 1:], torch.ones_like(token_LBT, dtype=torch.bool))

    def reference_nats(self, laws: Laws, n_words: int, drawn: Sequences) -> dict[str, Tensor]:
        train_N = laws["train"].numpy(force=True)
        counted = CountedLaws(train_N[:-1], train_N[1:], n_words)
        token_LBT, target_LBT = (tokens.numpy(force=True) for tokens in (drawn.token_LBT, drawn.target_LBT))
        reference = {
            "constant": torch.from_numpy(counted.unigram_nats(target_LBT)),
            "current": torch.from_numpy(counted.bigram_nats(token_LBT, target_LBT)),
        }
        reference = {name: nats.to(drawn.token_LBT.device) for name, nats in reference.items()}
        return reference | {"optimum": torch.full_like(reference["current"], torch.nan)}
