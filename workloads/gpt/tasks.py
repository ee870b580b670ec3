"""A GPT's tasks: how their sequences are drawn, by which distributions ("laws"), and the losses of simple predictors.

Axes: L lane, B sequence, T token, V word, P pair of tokens (previous, current), N token of a part of a text, or entry
of a table.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from attnsweep.workloads.diagnostics.ngrams import CountedLaws
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.gpt.text import read_text

Laws = dict[str, Tensor]
"""The tensors that define the distributions of sequences, (L, ...) by name; of a text its parts, (N,)."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """Tokens and their targets, int64, and whether each prediction counts in the loss, bool."""

    token_LBT: Tensor
    target_LBT: Tensor
    counts_LBT: Tensor


class Task(ABC):
    """A value of the parameter `task`. All but `text` want from `least_words` to `most_words` words."""

    name: ClassVar[str]
    least_words: ClassVar[int] = 2
    most_words: ClassVar[int] = 64

    def check(self, n_words: int, n_tokens: int, corpus: str | None) -> None:
        """Refuses numbers of words and tokens that don't fit, and a corpus that is missing or unused."""
        del n_tokens
        if corpus is not None:
            fix = "remove corpus, or set task=text"
            raise SpecError("corpus", given=corpus, expected=f"corpus=null with task={self.name}", fix=fix)
        if not self.least_words <= n_words <= self.most_words:
            expected = f"{self.least_words} to {self.most_words} words with task={self.name}"
            raise SpecError("n_words", given=n_words, expected=expected, fix="change n_words, or task")

    def laws(self, streams: Streams, n_words: int, contrast_L: Tensor, corpus: str | None) -> Laws:
        """Each training's own, but for a text; none if all have one distribution. `contrast_L` is `chain_contrast`,
        float64; `corpus` the file of a prepared text."""
        del streams, n_words, contrast_L, corpus
        return {}

    @abstractmethod
    def sequences(
        self, streams: Streams, name: str, laws: Laws, n_words: int, shape: tuple[int, int], step: int
    ) -> Sequences:
        """Those of one step, from the stream `name`: `batch` for training data, another for held-out data. `shape` is
        (B, T)."""

    @abstractmethod
    def reference_nats(self, laws: Laws, n_words: int, drawn: Sequences) -> dict[str, Tensor]:
        """-log p of each target under simple predictors, float64 (L, B, T), without meaning where predictions don't
        count: `constant`, the best that ignores the input; `current`, the best that sees only the current token;
        `optimum`, NaN if not known; and in `induction` also `context`."""

    def needs_previous(self, drawn: Sequences) -> Tensor:
        """Where heads are scored as previous-token heads, bool (L, B, T)."""
        return drawn.counts_LBT


class BigramTable(Task):
    """Independent uniform tokens. The target is looked up by the previous and the current one in a table of random
    words, each training's own."""

    name = "bigram_table"
    # In one of four tables of 2 words, one of 729 of 3, and one of 17 million of 4, the target depends on the current
    # token alone.
    least_words = 4

    def laws(self, streams: Streams, n_words: int, contrast_L: Tensor, corpus: str | None) -> Laws:
        """`table`, int64 (L, V, V), by previous and current token."""
        del contrast_L, corpus
        return {"table": streams.integers("task/table", (n_words, n_words), n_words)}

    def sequences(
        self, streams: Streams, name: str, laws: Laws, n_words: int, shape: tuple[int, int], step: int
    ) -> Sequences:
        token_LBT = streams.integers(name, shape, n_words, step)
        pair_LN = (token_LBT.roll(1, -1) * n_words + token_LBT).flatten(1)
        target_LBT = laws["table"].flatten(1).gather(1, pair_LN).view(token_LBT.shape)
        return Sequences(token_LBT, target_LBT, _is_after_first(token_LBT))

    def reference_nats(self, laws: Laws, n_words: int, drawn: Sequences) -> dict[str, Tensor]:
        current_LVV = one_hot(laws["table"], n_words).double().mean(1)
        index_LBT = drawn.token_LBT * n_words + drawn.target_LBT
        return {
            "constant": _nats(current_LVV.mean(1), drawn.target_LBT),
            "current": _nats(current_LVV.flatten(1), index_LBT),
            "optimum": torch.zeros_like(index_LBT, dtype=torch.float64),
        }


class Order2Chain(Task):
    """Stationary Markov chains of order 2, with transition probabilities softmax(contrast z), where z has standard
    normal entries drawn for each training."""

    name = "order_2_chain"
    least_words = 4
    most_words = 16  # the stationary distribution solves n_words^2 linear equations

    def laws(self, streams: Streams, n_words: int, contrast_L: Tensor, corpus: str | None) -> Laws:
        """`next`, the next token's probabilities after each pair, (L, P, V); and `pair`, the stationary distribution of
        pairs, (L, P)."""
        del corpus
        logits_LPV = contrast_L.view(-1, 1, 1) * streams.normal("task/chain", (n_words * n_words, n_words))
        next_LPV = logits_LPV.softmax(-1)
        return {"next": next_LPV, "pair": _stationary(next_LPV)}

    def sequences(
        self, streams: Streams, name: str, laws: Laws, n_words: int, shape: tuple[int, int], step: int
    ) -> Sequences:
        B, T = shape
        uniform_LTB = streams.uniform(name, (T, B), step)
        next_cdf_LPV = laws["next"].cumsum(-1)[..., :-1].contiguous()
        pair_cdf_LP = laws["pair"].cumsum(-1)[..., :-1].contiguous()
        pair_LB = torch.searchsorted(pair_cdf_LP, uniform_LTB[:, 0].contiguous(), right=True)
        tokens = [pair_LB // n_words, pair_LB % n_words]
        for t in range(1, T):
            cdf_LBV = next_cdf_LPV.gather(1, pair_LB.unsqueeze(-1).expand(-1, -1, next_cdf_LPV.shape[-1]))
            tokens.append((uniform_LTB[:, t].unsqueeze(-1) >= cdf_LBV).sum(-1))
            pair_LB = tokens[-2] * n_words + tokens[-1]
        text_LBT = torch.stack(tokens, -1)
        token_LBT = text_LBT[..., :-1]
        return Sequences(token_LBT, text_LBT[..., 1:], _is_after_first(token_LBT))

    def reference_nats(self, laws: Laws, n_words: int, drawn: Sequences) -> dict[str, Tensor]:
        V = n_words
        joint_LVV = (laws["pair"].unsqueeze(-1) * laws["next"]).unflatten(1, (V, V)).sum(1)
        current_LVV = joint_LVV / joint_LVV.sum(-1, keepdim=True)
        marginal_LV = laws["pair"].unflatten(1, (V, V)).sum(1)
        pair_LBT = drawn.token_LBT.roll(1, -1) * V + drawn.token_LBT
        return {
            "constant": _nats(marginal_LV, drawn.target_LBT),
            "current": _nats(current_LVV.flatten(1), drawn.token_LBT * V + drawn.target_LBT),
            "optimum": _nats(laws["next"].flatten(1), pair_LBT * V + drawn.target_LBT),
        }


def _stationary(next_LPV: Tensor) -> Tensor:
    """The p, (L, P), with p (I - M + E) = 1, where M has the transition probabilities of pairs and E is all ones."""
    L, P, V = next_LPV.shape
    pair_P = torch.arange(P, device=next_LPV.device)
    step_LPP = next_LPV.new_zeros(L, P, P)
    place_PV = (pair_P % V).unsqueeze(1) * V + pair_P[:V]
    step_LPP.scatter_(2, place_PV.expand(L, P, V), next_LPV)
    system = torch.eye(P, dtype=next_LPV.dtype, device=next_LPV.device) - step_LPP + 1.0
    pair_LP: Tensor = torch.linalg.solve(system.mT, torch.ones_like(next_LPV[..., 0]))
    return pair_LP


_SHORTEST_PART, _LONGEST_PART = 4, 2
"""Of a segment: it has at least 1/4 of the sequence's tokens, at most 1/2."""


class Induction(Task):
    """A random segment of different tokens, repeated; its length differs between sequences, so no fixed offset finds
    the token to copy. A previous-token head can write to each token the one before it; an induction head then finds the
    token whose predecessor equals the current one, and copies it (Olsson et al. 2022)."""

    name = "induction"

    def check(self, n_words: int, n_tokens: int, corpus: str | None) -> None:
        super().check(n_words, n_tokens, corpus)
        if n_tokens < 2 * _SHORTEST_PART:
            expected = f"at least {2 * _SHORTEST_PART} tokens with task=induction"
            raise SpecError("n_tokens", given=n_tokens, expected=expected, fix="raise n_tokens, or change task")
        if n_words < n_tokens // _LONGEST_PART:
            expected = f"at least {n_tokens // _LONGEST_PART} words: all tokens of a segment are different words"
            raise SpecError("n_words", given=n_words, expected=expected, fix="raise n_words, or lower n_tokens")

    def sequences(
        self, streams: Streams, name: str, laws: Laws, n_words: int, shape: tuple[int, int], step: int
    ) -> Sequences:
        del laws
        B, T = shape
        shortest, longest = T // _SHORTEST_PART, T // _LONGEST_PART
        word_LBV = streams.uniform(f"{name}/segment", (B, n_words), step).argsort(-1)
        length_LB1 = shortest + streams.integers(f"{name}/length", (B, 1), longest - shortest + 1, step)
        position_T = torch.arange(T + 1, device=word_LBV.device)
        text_LBT = word_LBV.gather(-1, position_T % length_LB1)
        return Sequences(text_LBT[..., :-1], text_LBT[..., 1:], position_T[:-1] >= length_LB1)

    def reference_nats(self, laws: Laws, n_words: int, drawn: Sequences) -> dict[str, Tensor]:
        del laws
        # As many predictions as the first segment has tokens do not count.
        length_LB1 = (~drawn.counts_LBT).sum(-1, keepdim=True).double()
        zeros = torch.zeros_like(drawn.target_LBT, dtype=torch.float64)
        return {
            "constant": zeros + math.log(n_words),
            "current": zeros + math.log(n_words - 1),
            # A uniform guess among the segment's tokens but the current one.
            "context": zeros + (length_LB1 - 1.0).log(),
            "optimum": zeros,
        }

    def needs_previous(self, drawn: Sequences) -> Tensor:
        """The segment's first round: a previous-token head writes there what induction heads read later."""
        return ~drawn.counts_LBT & _is_after_first(drawn.token_LBT)


class OwnText(Task):
    """Excerpts of the user's text at random places: of its training part, on which simple predictors are counted too,
    or of its held-out part. A text's entropy is not known, so there is no optimum."""

    name = "text"

    def check(self, n_words: int, n_tokens: int, corpus: str | None) -> None:
        del n_words
        if corpus is None:
            expected = "the path of a text corpus, which task=text needs"
            fix = "prepare a corpus with: attnsweep prepare-corpus FILE --unit characters --out TEXT.parquet"
            raise SpecError("corpus", given=corpus, expected=expected, fix=fix)
        text = read_text(corpus)
        shorter = min(len(text.train), len(text.held_out))
        if n_tokens >= shorter:
            expected = f"fewer than {shorter} tokens, the shorter part of {corpus}"
            raise SpecError("n_tokens", given=n_tokens, expected=expected, fix="lower n_tokens, or give a longer text")

    def laws(self, streams: Streams, n_words: int, contrast_L: Tensor, corpus: str | None) -> Laws:
        """`train` and `held_out`, int64 (N,) each, which all trainings share."""
        del streams, n_words
        assert corpus is not None, "refused by `check`"
        text = read_text(corpus)
        parts = {"train": text.train, "held_out": text.held_out}
        return {name: torch.from_numpy(part_N).to(contrast_L.device) for name, part_N in parts.items()}

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
        train_N, token_LBT, target_LBT = (
            tokens.numpy(force=True) for tokens in (laws["train"], drawn.token_LBT, drawn.target_LBT)
        )
        counted = CountedLaws(train_N[:-1], train_N[1:], n_words)
        arrays = {
            "constant": counted.unigram_nats(target_LBT),
            "current": counted.bigram_nats(token_LBT, target_LBT),
            "optimum": np.full(token_LBT.shape, np.nan),
        }
        return {name: torch.from_numpy(nats).to(drawn.token_LBT.device) for name, nats in arrays.items()}


def _is_after_first(token_LBT: Tensor) -> Tensor:
    return (torch.arange(token_LBT.shape[-1], device=token_LBT.device) > 0).expand(token_LBT.shape)


def _nats(law_LN: Tensor, index_LBT: Tensor) -> Tensor:
    """-log of the entries of each training's table, (L, B, T)."""
    log_p = law_LN.log().gather(1, index_LBT.flatten(1))
    return -log_p.view(index_LBT.shape)


TASKS: Mapping[str, Task] = MappingProxyType(
    {task.name: task for task in (BigramTable(), Order2Chain(), Induction(), OwnText())}
)
