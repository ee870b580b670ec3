"""A user's workload around a small attention module, correct or with a fault, and what it declares."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, layer_norm, scaled_dot_product_attention

from attnsweep import Batch, Evidence, Lanes, TrainingParameters, Verdicts, Workload, at_level, identities
from attnsweep.workloads.identities import Identity, Part
from tests.workloads.identities.small_attention import D, SmallAttention, T, V


@dataclass(frozen=True, kw_only=True)
class SmallParameters(TrainingParameters):
    """Nothing of its own."""


class SmallWorkload(Workload[SmallParameters]):
    """Which of some random words is wanted at each position?"""

    name = "small"
    parameters = SmallParameters
    summary = "words after words"
    level_names = ("chance",)
    faults: dict[str, str] = {}  # noqa: RUF012

    def build(self, parameters: SmallParameters) -> nn.Module:
        del parameters
        return SmallAttention(**self.faults)

    def batch(self, lanes: Lanes[SmallParameters], step: int) -> Batch:
        return {name: lanes.streams.integers(name, (T,), V, step) for name in ("words", "wanted")}

    def eval_batch(self, lanes: Lanes[SmallParameters]) -> Batch:
        return self.batch(lanes, 0)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return cast(Tensor, module(batch))

    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        del module
        chance = torch.full((), float(V), dtype=torch.float64, device=batch["words"].device).log()
        return {"chance": chance, "solved": 0.1 * chance}

    def judge(self, parameters: SmallParameters, evidence: Evidence) -> Verdicts:
        del parameters
        loss, levels = evidence.metrics["eval_loss"], evidence.levels
        return Verdicts.first_of({("marginal", "chance"): at_level(loss, levels["chance"])})

    def identities(self, parameters: SmallParameters) -> Sequence[Identity]:
        del parameters
        query, key = (Part("query"), Part("query_bias")), (Part("key"), Part("key_bias"))
        return (
            identities.KeyBias(name="the head", key=Part("key_bias"), query=Part("query_bias")),
            identities.queries_and_keys("the head", query, key),
            identities.RowSums(name="token", part=Part("token")),
            identities.AttentionRows(name="the head", weights=_weights, is_causal=True),
            identities.low_rank("the answer", Part("down"), Part("up")),
            identities.ClosedForm(name="the block", source="PyTorch's own attention", gradients=_gradients),
        )


def _weights(module: nn.Module, batch: Batch) -> Tensor:
    return cast(SmallAttention, module).weights(batch)


def _gradients(module: nn.Module, batch: Batch) -> Batch:
    """Those of the queries' and keys' weights, by another way to compute the same loss."""
    of = cast(SmallAttention, module)
    named = {name: value.detach().clone().requires_grad_() for name, value in of.named_parameters()}
    with torch.enable_grad():
        x = named["token"][batch["words"]] + named["position"]
        read = layer_norm(x, (D,), named["gain"], named["bias"])
        q, k, v = (read @ named[each] + named[f"{each}_bias"] for each in ("query", "key", "value"))
        mixed = scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        x = x + mixed @ named["output"] + named["output_bias"]
        x = x + torch.relu(layer_norm(x, (D,)) @ named["first"] + named["first_bias"]) @ named["second"]
        x = layer_norm(x, (D,))
        loss = cross_entropy(x @ (named["answer"] + named["down"] @ named["up"]), batch["wanted"])
    chosen = ("query", "key")
    return dict(zip(chosen, torch.autograd.grad(loss, [named[name] for name in chosen]), strict=True))
