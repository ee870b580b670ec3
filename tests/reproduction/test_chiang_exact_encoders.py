"""The exact transformers: accuracy 1 on all short strings, closed forms, published numbers."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from attnsweep.reproduction.chiang.encoders import (
    exact_first,
    exact_parity,
    flawed_first,
    with_extra_layer,
    with_layer_norm,
)
from attnsweep.workloads.formal_languages.encoder import Encoder
from tests.workloads.formal_languages.strings import every_string, members, random_strings, tokens

EXACT: dict[str, Callable[..., Encoder]] = {"first": exact_first, "parity": exact_parity}
FORMS: dict[str, Callable[[Encoder], Encoder]] = {
    "plain": lambda encoder: encoder,
    **{f"LN {eps:g}": lambda encoder, eps=eps: with_layer_norm(encoder, eps) for eps in (0.0, 1e-5, 0.1)},  # type: ignore[misc]
    "extra layer": lambda encoder: with_extra_layer(encoder, 0.0, 0.01),
    "extra layer 1e-5": lambda encoder: with_extra_layer(encoder, 1e-5, 0.01),
}
SCALES = ("inv_sqrt_d", "log_n_inv_sqrt_d")


def _logits(encoder: Encoder, language: str, text: Tensor, representation: str = "positions") -> Tensor:
    logit_B: Tensor = encoder(tokens(language, text, representation))
    return logit_B.detach()


def _bits(encoder: Encoder, language: str, text: Tensor, representation: str = "positions") -> Tensor:
    """(B,) cross-entropies."""
    sign = torch.where(members(language, text), 1.0, -1.0)
    return softplus(-sign * _logits(encoder, language, text, representation)) / math.log(2.0)


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("language", EXACT)
def test_every_string_up_to_ten_is_answered_rightly(language: str, form: str, scale: str) -> None:
    encoder = FORMS[form](EXACT[language](attention_scale=scale))
    for length in range(1, 11):
        text = every_string(length)
        assert torch.equal(_logits(encoder, language, text) > 0, members(language, text)), length


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("language", "n_strings"), [("first", 1000), ("parity", 4)])
@pytest.mark.parametrize("length", [99, 100, 1000])
def test_long_strings_are_answered_rightly(language: str, n_strings: int, form: str, length: int) -> None:
    encoder = FORMS[form](EXACT[language]())
    text = random_strings(n_strings, length)
    text[0], text[1] = False, True
    representation = "kinds" if language == "first" else "positions"
    assert torch.equal(_logits(encoder, language, text, representation) > 0, members(language, text))


def _strength(strength: float, scale: str, n: int) -> float:
    return strength * math.log(n) if scale == "log_n_inv_sqrt_d" else strength


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("strength", [0.5, 2.0])
@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_the_logits_are_those_of_the_closed_forms(length: int, strength: float, scale: str) -> None:
    text = every_string(length)
    n, k, is_first = length + 1, text.sum(1).double(), text[:, 0].double()
    assert {0, length} <= set(k.int().tolist())
    e = math.exp(_strength(strength, scale, n))
    first = e / (e + n - 1) * (is_first - 0.5)
    flawed = (e - 1) / (e + n - 1) * (is_first - 0.5) + (k - n / 2) / (e + n - 1)
    for encoder, expected in ((exact_first, first), (flawed_first, flawed)):
        found = _logits(encoder(strength, scale), "first", text)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    c = math.log(e)
    is_odd = k % 2 == 1
    if n % 2 == 0:
        parity = torch.where(is_odd, 1.0, -1.0).double() * 2 * math.tanh(c) / n**2
    else:
        z_1 = (n - 1) / 2 * e + (n + 1) / 2 / e
        z_2 = (n + 1) / 2 * e + (n - 1) / 2 / e
        parity = torch.where(is_odd, n + 1.0, 1.0 - n).double() * math.sinh(2 * c) / (n * z_1 * z_2)
    found = _logits(exact_parity(strength, scale), "parity", text)
    torch.testing.assert_close(found, parity, rtol=1e-6, atol=1e-9)


def test_the_flawed_solution_fails_once_its_strength_is_below_log_n() -> None:
    text = every_string(8)
    right = [
        (_logits(flawed_first(strength), "first", text) > 0) == members("first", text)
        for strength in (math.log(8) + 0.01, math.log(8) - 0.01)
    ]
    assert right[0].all()
    assert not right[1].all()


def test_cross_entropies_are_those_of_the_authors_code() -> None:
    """n = 100, c = 1 (which their code does not multiply by sqrt(d)): 0.9947 bits without LN, 0.1360 with LN 1e-5."""
    text = random_strings(4000, 100)
    plain = _bits(exact_first(6**-0.5), "first", text, "kinds")
    assert plain.mean().item() == pytest.approx(0.9947, abs=5e-5)
    # With LN the cross-entropies of 1... and 0... differ, so their mean over 100 random strings is uncertain by 2e-4.
    normalized = _bits(with_layer_norm(exact_first(12**-0.5), 1e-5), "first", text, "kinds")
    assert normalized.mean().item() == pytest.approx(0.1360, abs=5e-4)


def test_scaled_attention_bounds_the_cross_entropy() -> None:
    for length in (10, 1000):
        logit = _logits(exact_first(1.0, "log_n_inv_sqrt_d"), "first", random_strings(50, length), "kinds")
        assert 0.25 < logit.abs().min() < 0.3


@pytest.mark.parametrize("language", EXACT)
def test_layer_norm_at_epsilon_zero_is_flat_in_the_length(language: str) -> None:
    representation = "kinds" if language == "first" else "positions"
    for encoder, expected in (
        (with_layer_norm(EXACT[language](), 0.0), {"first": 0.119473, "parity": 0.059811}[language]),
        (with_extra_layer(EXACT[language](), 0.0, 0.01), 0.01),
    ):
        bits = [_bits(encoder, language, random_strings(20, length), representation) for length in (10, 100, 301)]
        torch.testing.assert_close(torch.cat(bits), torch.full((60,), expected).double(), rtol=1e-4, atol=0.0)


def test_a_weight_that_miscounts_breaks_parity() -> None:
    text = random_strings(200, 100)
    right = {
        counting: ((_logits(exact_parity(counting=counting), "parity", text) > 0) == members("parity", text))
        for counting in (1.0, 1.02)
    }
    assert right[1.0].all()
    assert not right[1.02].all()


def test_kinds_serve_the_exact_solution_too() -> None:
    text = every_string(6)
    for form in FORMS.values():
        encoder = form(exact_first())
        by_kind, by_position = (_logits(encoder, "first", text, which) for which in ("kinds", "positions"))
        torch.testing.assert_close(by_kind, by_position, rtol=1e-12, atol=1e-12)
