"""Words of any loss: they add up to its gradient, split as they say, and tell where a training stands."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from attnsweep.workloads.engine.contract import Batch, Training
from attnsweep.workloads.gradients.subject import at_random_weights
from attnsweep.workloads.lenses import batch_of, gradient_words
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.words.program import NotTracedError, program_of
from attnsweep.workloads.words.terms import GradientWords
from attnsweep.workloads.words.traced import traced_words, whole_gradients

FULL: Mapping[str, Value] = {"expectation": "fixed_sample", "batch_size": 8, "n_categories": 3, "n_positions": 4}
CASES: tuple[tuple[str, Mapping[str, Value]], ...] = (
    ("category_pairs", {**FULL, "variant": "solution_1"}),
    ("category_pairs", {**FULL, "variant": "solution_1", "attention_activation": "softmax", "qk": "merged"}),
    ("category_pairs", {**FULL, "variant": "solution_2", "attention_activation": "softmax", "skip": False}),
    ("category_pairs", {**FULL, "variant": "combined", "flavour": "lean_1"}),
    (
        "category_pairs",
        {"variant": "categories_only", "expectation": "sampled", "attention_activation": "softmax", "batch_size": 8},
    ),
    ("formal_languages", {"batch_size": 4}),
    ("gpt", {"n_blocks": 2, "n_heads": 2, "batch_size": 4}),
    ("gpt", {"tied": True, "qk": "merged", "activation": "gelu", "batch_size": 4}),
    ("gpt", {"lora_rank": 2, "batch_size": 4}),
)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "values"), CASES, ids=str)
def test_the_words_of_every_workload_add_up_to_its_gradient(name: str, values: Mapping[str, Value]) -> None:
    check(name, values)


@pytest.mark.scale
def test_so_do_those_of_a_translator() -> None:
    check("translation", {})


def check(name: str, values: Mapping[str, Value]) -> None:
    workload: Any = load_workload(name)
    training = Training(workload.parameters.resolve(values), seed=3)
    at = at_random_weights(workload, [training]).point(0)
    batch = batch_of(workload, training)
    at.module.zero_grad()
    words = gradient_words(workload, training, at.module, batch)
    loss = workload.loss(at.module, batch)
    weights = dict(at.module.named_parameters())
    found = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True, allow_unused=True)
    assert len({(term.part, term.kind) for term in words.terms}) >= 4
    largest = max(float(term.value.abs().max()) for term in words.terms)
    for (weight, value), gradient in zip(weights.items(), found, strict=True):
        has_words = any(term.weight == weight for term in words.terms)
        difference = words.gradient(weight) - gradient if has_words else gradient
        assert float(difference.abs().max()) <= 1e-14 * largest, weight
        assert words.weights[weight].shape == value.shape


class Regression(nn.Module):
    """x V W + b, beside it a penalty."""

    def __init__(self) -> None:
        super().__init__()
        self.V = nn.Parameter(noise(1, 3, 4))
        self.W = nn.Parameter(noise(2, 4, 2))
        self.b = nn.Parameter(noise(3, 2))

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = torch.relu(x @ self.V) @ self.W + self.b
        return answer


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


BATCH: Batch = {"x": noise(4, 6, 3), "y": noise(5, 6, 2), "class": torch.tensor([0, 1, 1, 0, 1, 1])}


def squared(module: nn.Module, batch: Batch) -> Tensor:
    return mse_loss(module(batch["x"]), batch["y"])


def classified(module: nn.Module, batch: Batch) -> Tensor:
    return cross_entropy(module(batch["x"]), batch["class"])


def words_of(module: nn.Module, loss: Any, groups: Mapping[str, Tensor] | None = None) -> GradientWords:
    return traced_words(program_of(module, loss, BATCH), groups or {})


def total(words: GradientWords, weight: str, **which: str) -> Tensor:
    mine = [
        term.value
        for term in words.terms
        if term.weight == weight and all(getattr(term, name) == value for name, value in which.items())
    ]
    return torch.stack(mine).sum(0)


@pytest.mark.parametrize("loss", [squared, classified])
def test_what_is_asked_of_an_output_of_0_pulls_and_what_the_answer_changes_brakes(loss: Any) -> None:
    module = Regression()
    words = words_of(module, loss)
    output = module(BATCH["x"])
    if loss is squared:
        asked, answered = -2 * BATCH["y"] / 12, 2 * output / 12
    else:
        target = nn.functional.one_hot(BATCH["class"], 2).double()
        asked, answered = (0.5 - target) / 6, (output.softmax(-1) - 0.5) / 6
    for kind, cotangent in (("pull", asked), ("brake", answered)):
        expected = torch.autograd.grad(output, list(module.parameters()), cotangent.detach(), retain_graph=True)
        for (name, _), value in zip(module.named_parameters(), expected, strict=True):
            torch.testing.assert_close(total(words, name, kind=kind), value, rtol=1e-13, atol=1e-15)


def test_parts_are_means_over_groups_and_what_they_leave() -> None:
    module = Regression()
    words = words_of(module, classified, {"kind": BATCH["class"]})
    assert list(dict.fromkeys(term.part for term in words.terms)) == ["mean", "kind", "rest"]
    # The bias sums over examples: only the mean has a sum.
    assert float(total(words, "b", part="kind").abs().max()) < 1e-16
    assert float(total(words, "b", part="rest").abs().max()) < 1e-16
    output = module(BATCH["x"])
    error = (output.softmax(-1) - nn.functional.one_hot(BATCH["class"], 2)) / 6
    of_group = torch.stack([error[BATCH["class"] == each].mean(0) for each in (0, 1)])[BATCH["class"]]
    expected = torch.autograd.grad(output, module.V, (of_group - error.mean(0)).detach())[0]
    torch.testing.assert_close(total(words, "V", part="kind"), expected, rtol=1e-12, atol=1e-15)


def test_a_penalty_is_no_pull_and_no_brake() -> None:
    def loss(module: Any, batch: Batch) -> Tensor:
        penalty: Tensor = 0.1 * module.V.square().sum()
        return squared(module, batch) + penalty

    module = Regression()
    words = words_of(module, loss)
    torch.testing.assert_close(total(words, "V", kind="other"), 0.2 * module.V.detach())
    torch.testing.assert_close(total(words, "V", kind="pull"), total(words_of(module, squared), "V", kind="pull"))


def test_words_read_as_the_rules_of_the_note_write_them() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.Q, self.K, self.V = (nn.Parameter(noise(seed, 3, 3)) for seed in range(3))

        def forward(self, X: Tensor) -> Tensor:
            return torch.softmax((X @ self.Q) @ (X @ self.K).T, -1) @ (X @ self.V)

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        return mse_loss(module(batch["X"]), batch["Y"])

    program = program_of(Attention(), loss, {"X": noise(4, 6, 3), "Y": noise(5, 6, 3)})
    words = traced_words(program, {})
    texts = {term.weight: term.text for term in words.terms}
    legend = words.legend
    assert texts["V"] == "[X]' R1' C" or texts["V"] == "X' R1' C"
    assert texts["Q"].startswith(("[X]' aa(", "X' aa("))
    assert "R1 = a(H" in legend


def test_the_states_of_a_users_model() -> None:
    class Table(nn.Module):
        """One number for each of four examples, as a product of two weights and a bias."""

        def __init__(self, values: Tensor, bias: float) -> None:
            super().__init__()
            self.u = nn.Parameter(values.sign() * values.abs().sqrt())
            self.w = nn.Parameter(values.abs().sqrt())
            self.b = nn.Parameter(torch.tensor([bias], dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            del x
            return self.u * self.w + self.b

    target = torch.tensor([1.0, -1.0, 2.0, -2.0], dtype=torch.float64) + 1

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        return mse_loss(module(batch["x"]), target)

    def state(values: Tensor, bias: float) -> str:
        return traced_words(program_of(Table(values, bias), loss, {"x": target}), {}).state()

    none = torch.full((4,), 1e-6, dtype=torch.float64)
    assert state(none, 1e-6) == "starved"
    assert state(none, 1.0) == "balanced in mean, starved in rest"
    assert state(target - 1, 1e-6) == "balanced in rest, starved in mean"
    assert state(target - 1, 1.0) == "balanced"
    assert state(0.4 * (target - 1), 1.0) == "moving"


def test_a_loss_that_cannot_be_followed_has_one_word_for_each_weight() -> None:
    def loss(module: Any, batch: Batch) -> Tensor:
        factor = 2.0 if module.b.sum().item() > 100 else 1.0
        return factor * squared(module, batch)

    module = Regression()
    with pytest.raises(NotTracedError):
        program_of(module, loss, BATCH)
    words = whole_gradients(module, loss, BATCH)
    assert words.state() == "undivided"
    squared(module, BATCH).backward()
    for name, value in module.named_parameters():
        torch.testing.assert_close(words.gradient(name), value.grad)


@pytest.mark.slow
def test_attention_maps_are_averages_over_the_batch_with_queries_as_rows() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = nn.Parameter(torch.log(torch.tensor([[1.0, 1.0], [3.0, 1.0]], dtype=torch.float64)))
            self.v = nn.Parameter(noise(6, 3, 2))

        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(self.logits.expand(3, 1, 2, 2), -1)[:, 0] @ (x @ self.v).view(3, 2, 2)

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        error: Tensor = module(batch["x"]).square().mean()
        return error

    (shown,) = words_of(Reader(), loss).maps
    torch.testing.assert_close(shown.weights_QT, torch.tensor([[0.5, 0.5], [0.75, 0.25]], dtype=torch.float64))
    assert shown.evenness is not None
    assert 0.8 < shown.evenness < 1.0
