"""The workload of encoders that learn a formal language. Axes: L lane, B string, N layer, H head, T token."""

import functools
import math
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from attnsweep.workloads.engine.contract import Batch, HeadScores, Lanes, Workload
from attnsweep.workloads.engine.functional import over_lanes, parted
from attnsweep.workloads.engine.initialization import draw_parameters
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.schedule import probe_steps
from attnsweep.workloads.engine.verdicts import AtLevel, Rule, VerdictTable, below_solved
from attnsweep.workloads.formal_languages.data import (
    LanguageLanes,
    batch_for_heads,
    evaluation_batch,
    strings_of_test_lengths,
    tokens_of,
    training_batches,
)
from attnsweep.workloads.formal_languages.encoder import Encoder, EncoderShape, torchs_law
from attnsweep.workloads.formal_languages.language import N_SYMBOLS
from attnsweep.workloads.formal_languages.parameters import FormalLanguagesParameters
from attnsweep.workloads.head_maps import SentenceMaps, chosen
from attnsweep.workloads.lenses import Lenses
from attnsweep.workloads.vocabulary import NO_ROLE

SCORE_NAMES = ("first_attention",)
POSITIONAL = 0.5
"""A head is `positional` if CLS gives position 1 more than this share of its attention, on average over strings."""

_N_STRINGS = 32
_SYMBOLS = ("0", "1", "CLS")


def first_attention(weight_BHT: Tensor) -> Tensor:
    """The mean attention of each head's CLS query on the first symbol, (H,)."""
    return weight_BHT[:, :, 1].mean(0)


@functools.lru_cache(maxsize=1)
def _batch_for_heads(lanes: LanguageLanes) -> Batch:
    # Kept from probe to probe: drawing long strings takes as long as scoring heads on them.
    return batch_for_heads(lanes, _N_STRINGS)


SOLVED_BITS = 0.05
"""A training is solved if it classifies all held-out strings correctly and its cross-entropy is below this."""
CONSTANT_LOGIT_STD = 1e-2
"""Below this standard deviation over strings the logit counts as constant: it is worth less than 2e-5 bits."""


VERDICTS = VerdictTable(
    (
        Rule.diverged(),
        Rule(
            outcome="solved", when=lambda _, evidence: (evidence.metrics["accuracy"] == 1.0) & below_solved(_, evidence)
        ),
        Rule(
            outcome="degenerate_zero",
            details=("constant",),
            when=lambda _, evidence: evidence.metrics["logit_std"] < CONSTANT_LOGIT_STD,
        ),
        AtLevel(outcome="marginal", level="constant"),
        AtLevel(outcome="marginal", level="count"),  # in FIRST the best answer by the number of 1s
        Rule.moving(),
    )
)

_NAT = 1.0 / math.log(2.0)


def _maps(workload: Workload[Any], encoder: nn.Module, lanes: Lanes[Any], sentence: int | None) -> SentenceMaps:
    del workload
    number = chosen(sentence, _N_STRINGS)
    batch = {name: value[0] for name, value in batch_for_heads(lanes, _N_STRINGS).items()}
    tokens = tokens_of(batch)
    attention = cast(Encoder, encoder).trace(tokens)[1]
    counts_T = tokens.log_count_BT[number].double().exp().round().long()
    symbols_T = tokens.feature_BTF[number, :, :N_SYMBOLS].argmax(-1)
    kinds = zip(symbols_T.tolist(), counts_T.tolist(), strict=True)
    keys = [_SYMBOLS[symbol] + (f" ×{count}" if count > 1 else "") for symbol, count in kinds if count]
    layers = ((("CLS",), keys, weight_BHT[number][:, None, counts_T > 0]) for weight_BHT in attention)
    return SentenceMaps.of(number, _N_STRINGS, ", ".join(keys), *layers)


class FormalLanguages(Workload[FormalLanguagesParameters]):
    name = "formal_languages"
    parameters = FormalLanguagesParameters
    summary = "encoders that learn FIRST or PARITY, and what they make of longer strings (Chiang & Cholak 2022)"

    head_score_names = SCORE_NAMES
    lenses: ClassVar[object] = Lenses(maps=_maps, least_examples=512)
    level_names = ("zero", "constant", "count")
    verdicts = VERDICTS

    def build(self, parameters: FormalLanguagesParameters) -> Encoder:
        shape = EncoderShape(
            n_layers=parameters.n_layers,
            n_heads=parameters.n_heads,
            d_model=parameters.d_model,
            d_ffn=parameters.d_ffn,
            n_position_features=parameters.of.n_position_features,
            has_layer_norm=parameters.layer_norm,
        )
        return Encoder(shape, parameters.attention_scale, parameters.layer_norm_eps)

    def initial(self, module: nn.Module, lanes: LanguageLanes) -> State:
        law = torchs_law(cast(Encoder, module).shape, lanes.streams)
        return draw_parameters(module, lanes.tensor("init_sigma", torch.float64), lanes.streams, law=law)

    def batch(self, lanes: LanguageLanes, step: int) -> Batch:
        return training_batches(lanes, range(step, step + 1))[0]

    def batches(self, lanes: LanguageLanes, steps: range) -> list[Batch]:
        return training_batches(lanes, steps)

    def probe_steps(self, parameters: FormalLanguagesParameters) -> tuple[int, ...]:
        if parameters.n_epochs is None:
            return probe_steps(parameters.n_steps)  # all, whatever they cost
        return tuple(range(0, parameters.n_steps + 1, parameters.steps_per_epoch))

    def eval_batch(self, lanes: LanguageLanes) -> Batch:
        return evaluation_batch(lanes)

    def fresh_eval_batch(self, lanes: LanguageLanes, step: int) -> Batch:
        return strings_of_test_lengths(lanes, step) if lanes.shared.fresh_test_strings else {}

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return _cross_entropy(cast(Encoder, module)(tokens_of(batch)), batch["sign"])

    def evaluate(self, module: nn.Module, batch: Batch) -> Batch:
        """The logits, and the cross-entropy in bits per string: 1 for a logit of 0."""
        logit = cast(Encoder, module)(tokens_of(batch))
        return {"logit": logit, "eval_loss": _NAT * _cross_entropy(logit, batch["sign"])}

    def measure(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Accuracy and the logits' standard deviation on the training length; for each test length the cross-entropy in
        bits, the accuracy, whether all strings are right, and CLS's attention to position 1 (mean over heads, summed
        over layers)."""
        encoder = cast(Encoder, module)
        measured = {"accuracy": _accuracy(batch["logit"], batch["sign"]), "logit_std": batch["logit"].std(correction=0)}
        for length in (int(name.partition("/")[0]) for name in batch if name.endswith("/sign")):
            sign_B = batch[f"{length}/sign"]
            logit_B, attention = encoder.trace(tokens_of(batch, length))
            accuracy = _accuracy(logit_B, sign_B)
            measured |= {
                f"cross_entropy_{length}": _NAT * _cross_entropy(logit_B, sign_B),
                f"accuracy_{length}": accuracy,
                f"generalizes_{length}": (accuracy == 1.0).to(accuracy.dtype),
                f"first_attention_{length}": torch.stack(
                    [first_attention(weight_BHT).mean() for weight_BHT in attention]
                ).sum(),
            }
        return measured

    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """On the held-out strings: of the logit 0, the best constant logit and, where known, the best function of the
        number of 1s."""
        del module
        sign_B = batch["sign"]
        share = (sign_B > 0).to(sign_B.dtype).mean()
        levels = {
            "solved": torch.full_like(share, SOLVED_BITS),
            "zero": torch.ones_like(share),
            "constant": -_NAT * (torch.xlogy(share, share) + torch.xlogy(1.0 - share, 1.0 - share)),
        }
        if "odds" in batch:
            levels["count"] = -_NAT * torch.where(sign_B > 0, batch["odds"], 1.0 - batch["odds"]).log().mean()
        return levels

    def score_heads(self, lanes: LanguageLanes, state: State) -> HeadScores | None:
        """By strings of the training length."""

        def scores(module: nn.Module, batch: Batch) -> Tensor:
            attention = cast(Encoder, module).trace(tokens_of(batch))[1]
            return torch.stack([first_attention(weight_BHT) for weight_BHT in attention])

        template = self.build(lanes.shared).to(lanes.device, lanes.dtype)
        with torch.no_grad():
            score_LNH = over_lanes(template, scores)(*parted(template, state), _batch_for_heads(lanes))
        to_first = score_LNH.to("cpu", torch.float64).numpy()
        role = np.where(to_first > POSITIONAL, "positional", NO_ROLE)
        return HeadScores(scores={SCORE_NAMES[0]: to_first}, role=role)


def _cross_entropy(logit_B: Tensor, sign_B: Tensor) -> Tensor:
    # softplus(-sign * logit), as a log_softmax of 0 and -sign * logit: an elementwise function would round the numbers
    # in its last, partly filled SIMD vector differently, so results would depend on the other trainings. The 0 comes
    # first: otherwise the gradient at a large margin would be computed as 1 - 1. In float32 the loss would be 0 beyond
    # a margin of 17.
    against_B = (-sign_B * logit_B).to(torch.float64)
    rows_B2 = torch.stack([torch.zeros_like(against_B), against_B], dim=-1)
    return -log_softmax(rows_B2, dim=-1)[:, 0].mean().to(logit_B.dtype)


def _accuracy(logit_B: Tensor, sign_B: Tensor) -> Tensor:
    # A logit of 0 counts as wrong: an output that is always 0 has accuracy 0, not one half.
    return (logit_B * sign_B > 0).to(logit_B.dtype).mean()
