"""What the shipped workloads declare holds, in their variants; and the declarations see a wrong module."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from attnsweep import defaults
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.gradients.check import Finding, check_identities, check_vmapped
from attnsweep.workloads.gradients.subject import at_random_weights
from attnsweep.workloads.identities import Group
from attnsweep.workloads.translation import Translation
from attnsweep.workloads.translation.translator import Attention, Translator
from tests.workloads.translation.small_translation import SMALL

FULL = {"expectation": "fixed_sample", "batch_size": 20, "n_categories": 3, "n_positions": 5}
CASES: dict[str, tuple[Workload[Any], dict[str, Any], set[str]]] = {
    "system P": (CategoryPairs(), {}, {"group", "closed form"}),
    "system P, softmax": (CategoryPairs(), {"attention_activation": "softmax"}, {"row sums", "attention rows"}),
    "system C": (CategoryPairs(), {"variant": "categories_only"}, {"group", "closed form"}),
    "system C, softmax": (
        CategoryPairs(),
        {"variant": "categories_only", "attention_activation": "softmax", "expectation": "sampled"},
        {"row sums"},
    ),
    "solution 1": (
        CategoryPairs(),
        {"variant": "solution_1", "attention_scale": "learned", **FULL},
        {"group", "row sums", "redundant bias"},
    ),
    "combined, leaning": (
        CategoryPairs(),
        {"variant": "combined", "flavour": "lean_2", "attention_activation": "softmax", **FULL},
        {"group", "no gradient"},
    ),
    "encoder": (
        FormalLanguages(),
        {"n_heads": 2, "d_ffn": 8, "batch_size": 4, "train_length": 6},
        {"key bias", "redundant bias", "group", "row sums", "attention rows"},
    ),
    "encoder without norms": (
        FormalLanguages(),
        {"layer_norm": False, "d_ffn": 8, "attention_scale": "log_n_query_inv_sqrt_d"},
        {"key bias", "redundant bias", "group", "attention rows"},
    ),
    "translator": (
        Translation(),
        {"n_heads": 2, "d_ffn": 8, "attention_scale": "log_n_inv_sqrt_d"},
        {"key bias", "redundant bias", "group", "row sums", "attention rows"},
    ),
    "translator, merged": (
        Translation(),
        {"qk": "merged", "attention_scale": "log_n_inv_sqrt_d"},
        {"redundant bias", "group", "row sums", "attention rows"},
    ),
    "translator, wide keys": (
        Translation(),
        {"qk_rank": 5},
        {"key bias", "redundant bias", "group", "row sums", "attention rows"},
    ),
    "translator, deviation + eps": (
        Translation(),
        {"layer_norm_convention": "outside_root", "label_smoothing": 0.1, "window": 1, "num_pos": 1},
        {"key bias", "redundant bias", "group", "row sums", "attention rows"},
    ),
}


def findings_of(workload: Workload[Any], values: dict[str, Any]) -> list[Finding]:
    small = SMALL if isinstance(workload, Translation) else {}
    parameters = defaults(workload, **(small | values))
    subject = at_random_weights(workload, [Training(parameters, seed) for seed in (0, 1)])
    points = subject.points()
    return [*check_vmapped(subject, points), *check_identities(subject, points)]


@pytest.mark.slow
@pytest.mark.parametrize(("workload", "values", "declared"), CASES.values(), ids=CASES.keys())
def test_what_a_shipped_workload_declares_holds(
    workload: Workload[Any], values: dict[str, Any], declared: set[str]
) -> None:
    found = findings_of(workload, values)
    assert not [each for each in found if each.verdict == "fails"]
    assert {each.check for each in found} - {"fused"} == declared
    assert max(each.error or 0.0 for each in found) < 1e-14


def test_the_declarations_of_a_translator_see_a_mask_that_is_too_weak(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = Attention.forward

    def weakly(self: Attention, asking: Tensor, asked: Tensor, sight: Any, scale: Any) -> tuple[Tensor, Tensor]:
        weak = replace(sight, bias_BQK=sight.bias_BQK.clamp(min=-1.0))
        return attend(self, asking, asked, weak, scale)

    monkeypatch.setattr(Attention, "forward", weakly)
    failed = [each for each in findings_of(Translation(), {}) if each.verdict == "fails"]
    assert {each.check for each in failed} == {"attention rows"}
    assert "attention of decoder_self: queries see later keys" in failed[0].message


def test_the_declarations_of_a_translator_see_a_norm_that_keeps_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    def root_mean_square(value: Tensor, gain: Tensor, bias: Tensor, inverse_root_eps: Tensor) -> Tensor:
        del inverse_root_eps
        return torch.addcmul(bias, value * torch.rsqrt(value.square().mean(-1, keepdim=True)), gain)

    monkeypatch.setattr("attnsweep.workloads.attention.layers.fused_layer_norm", root_mean_square)
    failed = [each for each in findings_of(Translation(), {}) if each.verdict == "fails"]
    assert {each.check for each in failed} == {"row sums"}
    assert {each.parameter for each in failed} >= {
        "translator.source_embedding_VD",
        "translator.cross.out_weight_DD",
        "translator.decoder_ffn.second_bias_D",
    }


def test_groups_name_the_charges_of_each_head() -> None:
    workload = Translation()
    groups = [each for each in workload.identities(defaults(workload, n_heads=2)) if isinstance(each, Group)]
    assert [each.name for each in groups if each.kind == "qk"] == [
        f"queries and keys of {layer}, head {head}"
        for layer in ("encoder_self", "decoder_self", "cross")
        for head in (0, 1)
    ]
    module = workload.build(defaults(workload, **SMALL))
    assert isinstance(module.translator, Translator)
    weights = {name: torch.randn_like(value) for name, value in module.named_parameters()}
    per_head = [each for each in workload.identities(defaults(workload, **SMALL)) if isinstance(each, Group)]
    assert {each.charge(weights).shape for each in per_head if each.kind in ("qk", "vo")} == {(4, 4)}
