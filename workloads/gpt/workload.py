"""The workload of minimal GPTs on small languages whose entropies are known, or on a user's text.

Axes: L lane, B sequence, T token, V word.
"""

import functools
import math
from typing import ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from attnsweep.workloads.diagnostics.roles.scores import PATTERN_SCORE_NAMES, score_patterns
from attnsweep.workloads.engine.contract import Batch, HeadScores, Lanes, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.outcomes import Evidence, is_overfit
from attnsweep.workloads.engine.schedule import probe_steps
from attnsweep.workloads.engine.verdicts import AtLevel, Rule, VerdictTable
from attnsweep.workloads.gpt.model import GPT
from attnsweep.workloads.gpt.parameters import GPTParameters
from attnsweep.workloads.gpt.tasks import TASKS, Laws, OwnText, Sequences
from attnsweep.workloads.gpt.text import read_text
from attnsweep.workloads.lenses import Lenses

GPTLanes = Lanes[GPTParameters]

LEVEL = "level/"
"""The prefix, in held-out data, of simple predictors' losses."""
SOLVED_SHARE = 0.05
"""A training is solved at this share of the way from the optimum to H(Y | current token). Our choice."""

_N_SEQUENCES = 32


def _overfit(parameters: GPTParameters, evidence: Evidence) -> NDArray[np.bool_]:
    """Only on a user's text: the other tasks draw new sequences at each step."""
    if parameters.task != OwnText.name:
        return np.zeros_like(evidence.metrics["eval_loss"], dtype=np.bool_)
    return is_overfit(evidence)


VERDICTS = VerdictTable(
    (
        Rule.diverged(),
        Rule.solved(),
        Rule(outcome="overfit", when=_overfit),
        AtLevel(outcome="marginal", level="context"),
        AtLevel(outcome="marginal", level="current"),  # H(Y | current token)
        AtLevel(outcome="degenerate_zero", level="constant"),  # H(Y), the best constant
        AtLevel(outcome="degenerate_zero", level="zero"),  # log V
        Rule.moving(),
    )
)


def _vocabulary(parameters: GPTParameters) -> tuple[str, ...]:
    return () if parameters.corpus is None else read_text(parameters.corpus).words


class GPTWorkload(Workload[GPTParameters]):
    name = "gpt"
    parameters = GPTParameters
    summary = "minimal GPTs: when does attention begin to select, and induction heads emerge? (Boue 2025)"

    head_score_names = PATTERN_SCORE_NAMES
    lenses: ClassVar[object] = Lenses(vocabulary=_vocabulary)
    level_names = ("zero", "constant", "current", "context")
    verdicts = VERDICTS

    def build(self, parameters: GPTParameters) -> GPT:
        return GPT(
            parameters.shape, attention_scale=parameters.attention_scale, layer_norm_eps=parameters.layer_norm_eps
        )

    def batch(self, lanes: GPTLanes, step: int) -> Batch:
        """Tokens, targets and weights, (L, B, T). A training's weights sum to 1: 0 where predictions don't count, equal
        elsewhere."""
        return _batch(lanes, _sequences(lanes, "batch", lanes.shared.batch_size, step))

    def eval_batch(self, lanes: GPTLanes) -> Batch:
        """Also the losses of simple predictors, (L,), as `level/<predictor>`."""
        drawn = _sequences(lanes, "eval", lanes.shared.eval_batch_size, 0)
        nats = TASKS[lanes.shared.task].reference_nats(_laws(lanes), lanes.shared.n_words, drawn)
        weight_LBT = _weight(drawn.counts_LBT)
        return _batch(lanes, drawn) | {
            f"{LEVEL}{name}": torch.where(drawn.counts_LBT, value * weight_LBT, 0.0).sum((1, 2)).to(lanes.dtype)
            for name, value in nats.items()
        }

    def probe_steps(self, parameters: GPTParameters) -> tuple[int, ...] | None:
        every = parameters.probe_every
        return None if every is None else probe_steps(parameters.n_steps, every)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return _cross_entropy(cast(GPT, module)(batch["token"]), batch)

    def evaluate(self, module: nn.Module, batch: Batch) -> Batch:
        logit = cast(GPT, module)(batch["token"])
        return {"logit": logit, "eval_loss": _cross_entropy(logit, batch)}

    def measure(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """`accuracy`, among the predictions that count."""
        del module
        is_right_BT = batch["logit"].argmax(-1) == batch["target"]
        return {"accuracy": (is_right_BT * batch["weight"]).sum()}

    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """On the held-out sequences.

        `zero`: equal logits. `constant`: the best constant. `current`: the best function of the current token.
        `context` (`induction` only): a predictor that knows the segment's tokens but not their order. For a text,
        `constant` and `current` are the unigram and bigram distributions of its training part. `solved` is NaN for a
        text, and where `current` is as good as the optimum.
        """
        shape = cast(GPT, module).shape
        levels = {name.removeprefix(LEVEL): value for name, value in batch.items() if name.startswith(LEVEL)}
        optimum = levels.pop("optimum")
        zero = torch.full_like(optimum, math.log(shape.n_words))
        solved = optimum + SOLVED_SHARE * (levels["current"] - optimum)
        return levels | {"zero": zero, "solved": torch.where(levels["current"] > optimum, solved, math.nan)}

    def score_heads(self, lanes: GPTLanes, state: State) -> HeadScores:
        drawn = _sequences(lanes, "heads", _N_SEQUENCES, 0)
        batch = {
            "token": drawn.token_LBT,
            "counts": drawn.counts_LBT,
            "needs_previous": TASKS[lanes.shared.task].needs_previous(drawn),
        }
        template = self.build(lanes.shared)
        return score_patterns(template, lambda module, token: cast(GPT, module).attention(token), lanes, state, batch)


@functools.lru_cache(maxsize=1)
def _laws(lanes: GPTLanes) -> Laws:
    shared = lanes.shared
    contrast_L = lanes.tensor("chain_contrast", torch.float64)
    return TASKS[shared.task].laws(lanes.streams, shared.n_words, contrast_L, shared.corpus)


def _sequences(lanes: GPTLanes, name: str, n_sequences: int, step: int) -> Sequences:
    shared = lanes.shared
    shape = (n_sequences, shared.n_tokens)
    return TASKS[shared.task].sequences(lanes.streams, name, _laws(lanes), shared.n_words, shape, step)


def _batch(lanes: GPTLanes, drawn: Sequences) -> Batch:
    return {"token": drawn.token_LBT, "target": drawn.target_LBT, "weight": _weight(drawn.counts_LBT).to(lanes.dtype)}


def _weight(counts_LBT: Tensor) -> Tensor:
    return counts_LBT / counts_LBT.sum((1, 2), keepdim=True).double()


def _cross_entropy(logit_BTV: Tensor, batch: Batch) -> Tensor:
    log_p_BTV = log_softmax(logit_BTV, dim=-1)
    words_V = torch.arange(logit_BTV.shape[-1], device=logit_BTV.device)
    # Selected by one-hot products, because the gradient of a lookup is a slow scatter.
    weight_BTV = (batch["target"].unsqueeze(-1) == words_V) * batch["weight"].unsqueeze(-1)
    return -(log_p_BTV * weight_BTV).sum()
