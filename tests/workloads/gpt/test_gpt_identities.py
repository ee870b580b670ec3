"""What the GPT declares about its gradients holds, and fails where the attention is wrong."""

from typing import Any, cast

import pytest

from attnsweep.reproduction.boue.gradients import MaskThatMultiplies
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.gpt import GPTParameters, GPTWorkload
from attnsweep.workloads.gpt.model import GPT
from attnsweep.workloads.gradients.subject import at_random_weights
from attnsweep.workloads.identities import KeyBias
from attnsweep.workloads.testing import defaults

MODES: dict[str, dict[str, Any]] = {
    "plain, epsilon 0": {"layer_norm_eps": 0.0, "n_heads": 2, "qk_rank": 3},
    "tied, merged, gelu": {"tied": True, "qk": "merged", "n_heads": 2, "activation": "gelu", "n_blocks": 2},
    "merged, log n": {"qk": "merged", "attention_scale": "log_n_inv_sqrt_d", "positions": "sinusoidal"},
    "low rank": {"lora_rank": 2},
}


class WithMaskThatMultiplies(GPTWorkload):
    """Logits times 0 where a key is later."""

    def build(self, parameters: GPTParameters) -> GPT:
        model = super().build(parameters)
        for block in model.blocks:
            cast(Any, block).attention.__class__ = MaskThatMultiplies
        return model


def small(**values: Any) -> Training[GPTParameters]:
    return Training(defaults(GPTWorkload(), d_model=8, d_ffn=5, batch_size=3, **values), 1)


@pytest.mark.parametrize("mode", MODES)
def test_all_identities_hold(mode: str) -> None:
    training = small(**MODES[mode])
    at = at_random_weights(GPTWorkload(), [training]).point(0)
    for identity in GPTWorkload().identities(training.parameters):
        for found in identity.errors(at):
            assert found.error < 1e-13, (identity.name, found.parameter)


def test_the_key_bias_tells_of_a_mask_that_multiplies() -> None:
    training = small()
    at = at_random_weights(WithMaskThatMultiplies(), [training]).point(0)
    (key_bias,) = (each for each in GPTWorkload().identities(training.parameters) if isinstance(each, KeyBias))
    assert key_bias.errors(at)[0].error > 1e-6
    assert "the mask multiplies" in key_bias.reason(at)


def test_flat_directions_are_named_once() -> None:
    names = [each.name for each in GPTWorkload().identities(small(n_blocks=2, n_heads=2).parameters)]
    assert len(set(names)) == len(names)
