"""A GPT as Hugging Face's GPT-2 has the same logits, and what has no counterpart there is refused in one sentence."""

from typing import Any, cast

import pytest
import torch

from attnsweep.workloads.errors import UserError
from attnsweep.workloads.gpt import GPTParameters, GPTWorkload
from attnsweep.workloads.gpt.hugging_face import as_gpt2
from attnsweep.workloads.gpt.model import GPT
from attnsweep.workloads.testing import defaults

SIZES: dict[str, Any] = {
    "d_model": 12,
    "n_heads": 2,
    "n_blocks": 2,
    "n_tokens": 6,
    "dtype": "float64",
    "task": "bigram_table",
}


def random_module(parameters: GPTParameters) -> GPT:
    """All parameters random."""
    module = GPTWorkload().build(parameters).double().eval()
    draw = torch.Generator().manual_seed(0)
    for value in module.parameters():
        value.data = value.data + 0.3 * torch.randn(value.shape, generator=draw, dtype=torch.float64)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"tied": True, "n_words": 20, "activation": "gelu"},
        {"positions": "sinusoidal", "attention_scale": "one", "d_ffn": 5, "layer_norm_eps": 0.1},
        {"positions": "none", "activation": "gelu_tanh"},
    ],
    ids=["untied", "tied", "scale", "no positions"],
)
def test_the_logits_are_equal(values: dict[str, Any]) -> None:
    pytest.importorskip("transformers", reason="no transformers: pip install 'attnsweep[hf]'")
    parameters = defaults(GPTWorkload(), **SIZES | values)
    module, state = random_module(parameters), torch.get_rng_state()
    model = cast(Any, as_gpt2(parameters, module))
    assert torch.equal(torch.get_rng_state(), state)
    tokens = torch.randint(parameters.n_words, (5, 6), generator=torch.Generator().manual_seed(1))
    assert type(model).__name__ == "GPT2LMHeadModel"
    assert torch.allclose(model(tokens).logits, module(tokens), rtol=1e-12, atol=1e-12)
    assert model.lm_head.weight.data_ptr() == model.transformer.wte.weight.data_ptr() or not parameters.tied


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (
            {"attention_scale": "log_n_inv_sqrt_d"},
            "attention_scale: got 'log_n_inv_sqrt_d', expected attention_scale=inv_sqrt_d or attention_scale=one",
        ),
        ({"qk": "merged"}, "qk: got 'merged', expected qk=factored, because GPT-2 keeps"),
        ({"qk_rank": 4}, "qk_rank: got 4, expected the rank 6, because GPT-2's queries are d_model / n_heads wide"),
        ({"n_words": 20}, "tied: got False, expected tied=true, because GPT-2's last layer has no bias"),
    ],
)
def test_what_has_no_counterpart_is_refused(values: dict[str, Any], error: str) -> None:
    pytest.importorskip("transformers", reason="no transformers: pip install 'attnsweep[hf]'")
    parameters = defaults(GPTWorkload(), **SIZES | values)
    with pytest.raises(UserError) as refusal:
        as_gpt2(parameters, random_module(parameters))
    assert str(refusal.value).startswith(error)
