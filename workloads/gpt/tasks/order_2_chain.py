"""The task `order_2_chain`: a stationary Markov chain whose next token depends on the last two tokens.

Axes: L lane, B sequence, T token, P = V^2 pair of tokens (previous, current), V word.
"""

import math

import torch
from torch import Tensor

from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.gpt.tasks.task import Laws, Sequences, Task, check_at_least_four, nats

_MOST_WORDS = 16
"""The largest vocabulary: the stationary distribution is found by solving a linear system of V^2 unknowns."""
_DEVIATIONS = 10.0
"""The least contrast is this number over the square root of the number of tokens."""


class Order2Chain(Task):
    """Second-order Markov chains: p(y | x_(i-1), x_i) = softmax(contrast z), with z ~ N(0, 1) drawn per training."""

    name = "order_2_chain"
    summary = "the next token of a random Markov chain of order 2"

    def check(self, n_words: int, n_tokens: int, corpus: str | None) -> None:
        super().check(n_words, n_tokens, corpus)
        check_at_least_four(self.name, n_words)
        if n_words > _MOST_WORDS:
            raise SpecError(
                "n_words",
                given=n_words,
                expected=f"at most {_MOST_WORDS} words with task=order_2_chain",
                fix="lower n_words",
            )

    def least_contrast(self, n_judged: int) -> float:
        """Returns the smallest contrast with which noise does not decide the outcome, rounded up to two digits.

        The best predictor that sees the current token alone is worse than the optimum by about
        contrast^2 (1 - 1/V)^2 / 2 nats per token, with a standard deviation of contrast (1 - 1/V). Over n tokens the
        mean difference is contrast (1 - 1/V) sqrt(n) / 2 standard errors. At a contrast of `_DEVIATIONS` / sqrt(n), the
        two were told apart in all of 300 chains of 4 and of 8 words.
        """
        return math.ceil(100 * _DEVIATIONS / math.sqrt(n_judged)) / 100

    def laws(self, streams: Streams, n_words: int, contrast_L: Tensor, corpus: str | None) -> Laws:
        """Draws the transition probabilities `next` (L, P, V) float64, and computes `pair` (L, P), the stationary
        distribution of pairs.
        """
        del corpus
        V = n_words
        logits_LPV = contrast_L.view(-1, 1, 1) * streams.normal("task/chain", (V * V, V))
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
        token_LBT = torch.stack(tokens, -1)
        counts_T = torch.arange(T, device=token_LBT.device) > 0
        return Sequences(token_LBT[..., :-1], token_LBT[..., 1:], counts_T.expand(token_LBT.shape[0], B, T))

    def reference_nats(self, laws: Laws, n_words: int, drawn: Sequences) -> dict[str, Tensor]:
        V = n_words
        current_LVV = _given_current(laws)
        marginal_LV = laws["pair"].unflatten(1, (V, V)).sum(1)
        pair_LBT = drawn.token_LBT.roll(1, -1) * V + drawn.token_LBT
        return {
            "constant": nats(marginal_LV, drawn.target_LBT),
            "current": nats(current_LVV.flatten(1), drawn.token_LBT * V + drawn.target_LBT),
            "optimum": nats(laws["next"].flatten(1), pair_LBT * V + drawn.target_LBT),
        }


def _given_current(laws: Laws) -> Tensor:
    """Returns the probabilities of the next token given the current token alone, (L, V, V)."""
    V = laws["next"].shape[-1]
    joint_LVVV: Tensor = (laws["pair"].unsqueeze(-1) * laws["next"]).unflatten(1, (V, V))
    joint_LVV = joint_LVVV.sum(1)
    return joint_LVV / joint_LVV.sum(-1, keepdim=True)


def _stationary(next_LPV: Tensor) -> Tensor:
    """Returns the stationary distribution of token pairs, (L, P): the p with p (1 - M + E) = 1, where E is all ones."""
    L, P, V = next_LPV.shape
    pair_P = torch.arange(P, device=next_LPV.device)
    step_LPP = next_LPV.new_zeros(L, P, P)
    place_PV = (pair_P % V).unsqueeze(1) * V + pair_P[:V]
    step_LPP.scatter_(2, place_PV.expand(L, P, V), next_LPV)
    system = torch.eye(P, dtype=next_LPV.dtype, device=next_LPV.device) - step_LPP + 1.0
    pair_LP: Tensor = torch.linalg.solve(system.mT, torch.ones_like(next_LPV[..., 0]))
    return pair_LP
