"""Chiang & Cholak's transformers with hand-set weights: accuracy 1 on short strings, closed forms, printed numbers."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor

from attnsweep.reproduction.chiang import exact
from attnsweep.reproduction.chiang.encoders import (
    exact_first,
    exact_parity,
    flawed_first,
    with_extra_layer,
    with_layer_norm,
)
from attnsweep.reproduction.chiang.exact import answers, count_turns
from attnsweep.reproduction.comparison import Comparison
from attnsweep.workloads.formal_languages.encoder import Encoder
from tests.workloads.formal_languages.strings import every_string, members, random_strings, tokens

QUIET = Console(quiet=True)
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


def _drawn(comparison: Comparison, name: str) -> dict[str, dict[str, object]]:
    assert [path.name for path in comparison.figures] == [f"{name}.png", f"{name}.svg"]
    assert all(path.stat().st_size > 10_000 for path in comparison.figures)
    return {row["name"]: row for row in json.loads(comparison.to_json())["rows"]}


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


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("strength", [0.5, 2.0])
@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_the_logits_are_those_of_the_closed_forms(length: int, strength: float, scale: str) -> None:
    text = every_string(length)
    n, k, is_first = length + 1, text.sum(1).double(), text[:, 0].double()
    assert {0, length} <= set(k.int().tolist())
    c = strength * math.log(n) if scale == "log_n_inv_sqrt_d" else strength
    e = math.exp(c)
    first = e / (e + n - 1) * (is_first - 0.5)
    flawed = (e - 1) / (e + n - 1) * (is_first - 0.5) + (k - n / 2) / (e + n - 1)
    is_odd = k % 2 == 1
    if n % 2 == 0:
        parity = torch.where(is_odd, 1.0, -1.0).double() * 2 * math.tanh(c) / n**2
    else:
        z_1, z_2 = ((n - sign) / 2 * e + (n + sign) / 2 / e for sign in (1, -1))
        parity = torch.where(is_odd, n + 1.0, 1.0 - n).double() * math.sinh(2 * c) / (n * z_1 * z_2)
    for encoder, language, expected in (
        (exact_first, "first", first),
        (flawed_first, "first", flawed),
        (exact_parity, "parity", parity),
    ):
        found = _logits(encoder(strength, scale), language, text)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_scaled_attention_bounds_the_cross_entropy() -> None:
    for length in (10, 1000):
        logit = _logits(exact_first(1.0, "log_n_inv_sqrt_d"), "first", random_strings(50, length), "kinds")
        assert 0.25 < logit.abs().min() < 0.3


@pytest.mark.parametrize("language", EXACT)
def test_layer_norm_at_epsilon_zero_is_flat_in_the_length(language: str) -> None:
    for encoder, expected in (
        (with_layer_norm(EXACT[language](), 0.0), {"first": 0.119473, "parity": 0.059811}[language]),
        (with_extra_layer(EXACT[language](), 0.0, 0.01), 0.01),
    ):
        bits = [answers(encoder, language, length, 20).bits_B for length in (10, 100, 301)]
        torch.testing.assert_close(torch.cat(bits), torch.full((60,), expected).double(), rtol=1e-4, atol=0.0)


def test_answers_are_those_of_the_closed_form() -> None:
    s = math.e / (math.e + 20) / 2
    found = answers(exact_first(), "first", 20, 50)
    assert found.mean_bits == pytest.approx(math.log2(1 + math.exp(-s)), abs=1e-12)
    assert found.accuracy == 1.0


def test_a_wrong_answer_is_seen() -> None:
    assert answers(flawed_first(0.1), "first", 50, 200).accuracy < 0.9
    assert answers(exact_parity(counting=1.02), "parity", 100, 200).accuracy < 1.0


@pytest.mark.slow
def test_figure_2_has_the_published_values(tmp_path: Path) -> None:
    """The authors' code prints 0.9947 and 0.1360 bits for c = 1, which it does not multiply by sqrt(d)."""
    lengths = {"first": (1, 10, 300), "parity": (2, 9, 40)}
    rows = _drawn(exact.reproduce_fig2(tmp_path, QUIET, lengths, 200), "chiang-fig2")
    for name, published in (("FIRST, no LN, n = 100: bits", 0.9947), ("FIRST, LN 1e-5, n = 100: bits", 0.1360)):
        assert rows[name]["published"] == published
        assert rows[name]["ours"] == pytest.approx(published, abs=1e-3)
        assert rows[name]["agrees"] is True
    assert rows["FIRST: lowest accuracy at any n"]["ours"] == 1.0
    assert rows["PARITY, LN 0: largest less smallest, bits"]["agrees"] is True
    assert rows["PARITY, no LN: bits at n = 40"]["agrees"] is True


@pytest.mark.scale
@pytest.mark.slow
def test_figure_3_oscillates_away_from_1_and_not_at_it(tmp_path: Path) -> None:
    rows = _drawn(exact.reproduce_fig3(tmp_path, QUIET, 40, np.linspace(0.5, 1.5, 81), 100), "chiang-fig3")
    assert rows["weight 1: accuracy"]["ours"] == 1.0
    assert rows["turns of the bits"]["agrees"] is True
    near = _drawn(exact.reproduce_fig3(tmp_path, QUIET, 40, np.linspace(0.999, 1.001, 5), 100), "chiang-fig3")
    assert near["turns of the bits"]["ours"] == 0.0
    assert near["turns of the bits"]["agrees"] is False
    assert near["accuracy 1 at all weights from, to"]["ours"] == "0.999, 1.001"


@pytest.mark.parametrize(
    ("curve", "n_turns"), [([0, 1, 0, 1], 2), ([0, 1, 0.8, 1, 0], 1), ([0, 0.1, 0.2, 0.3, 0.9], 0)]
)
def test_turns_smaller_than_asked_for_do_not_count(curve: list[float], n_turns: int) -> None:
    assert count_turns(curve, 0.5) == n_turns


@pytest.mark.slow
def test_the_flawed_solution_fails_where_its_strength_says(tmp_path: Path) -> None:
    found = exact.reproduce_flawed_first(tmp_path, QUIET, (4.5, 20.5), (5, 300), 200)
    assert [row.agrees for row in found.rows] == [True] * 5
    assert [row.ours for row in found.rows][::2] == [4, 20, 2]
    assert 0.5 < float(found.rows[1].ours) < float(found.rows[3].ours) < 1.0
    assert all(row.low is not None for row in found.rows[1:4:2])
    assert {path.name for path in found.figures} == {"chiang-flawed-first.png", "chiang-flawed-first.svg"}


def test_cross_entropies_are_as_low_as_wished() -> None:
    found = exact.reproduce_confidence(Path(), QUIET, {"first": (1, 30, 1000), "parity": (2, 9)}, 10)
    assert len(found.rows) == 3 * 2 + 4
    assert all(row.agrees for row in found.rows)
    by_name = {row.name: float(row.ours) for row in found.rows}
    most = by_name["Proposition 3, FIRST: most bits at any length"]
    assert most == pytest.approx(math.log2(1 + math.exp(-1001 / (2 * 2001))), rel=0.02)


def test_a_cross_entropy_that_is_not_reached_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_EXACT", {"first": exact_first})
    monkeypatch.setattr(exact, "with_extra_layer", lambda plain, *_: plain)
    found = exact.reproduce_confidence(Path(), QUIET, {"first": (1, 30)}, 10)
    assert [row.agrees for row in found.rows[:3]] == [False] * 3
