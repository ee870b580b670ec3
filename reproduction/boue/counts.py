"""The parameter counts that Boue 2025 prints, and what it states about costs, beside our GPT model's; and the small
random models on which formulas are compared.

Parameters are counted by building the model without memory (torch's meta device), not by the paper's formulas. Axes:
those of `Transformer`.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from attnsweep.reproduction.boue.low_rank import add_updates, freeze
from attnsweep.reproduction.comparison import ComparedValue, Comparison, value_row
from attnsweep.workloads.attention.attention import Sight
from attnsweep.workloads.attention.transformer import TransformerBlock
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.gpt.model import GPT, GPTShape

BASE = GPTShape(n_words=50_257, n_tokens=1024, d_model=768, n_heads=12, n_blocks=12)
"""GPT-2 small's, untied."""
_OTHERS = (
    ("medium, tied", dataclasses.replace(BASE, d_model=1024, n_heads=16, n_blocks=24, tied=True), 354_823_168),
    ("large, tied", dataclasses.replace(BASE, d_model=1280, n_heads=20, n_blocks=36, tied=True), 774_030_080),
    ("XL, tied", dataclasses.replace(BASE, d_model=1600, n_heads=25, n_blocks=48, tied=True), 1_557_611_200),
)
_SMALL = GPTShape(n_words=11, n_tokens=24, d_model=16, n_heads=2, n_blocks=2)
"""That of the model whose multiplications are counted and whose cache is compared."""


def reproduce(directory: Path, console: Console) -> Comparison:
    """Counts parameters and multiplications, and compares generation with a cache. Trains nothing."""
    del directory
    console.print("counting parameters without memory, and multiplications of small models")
    return Comparison(
        title="boue-counts: parameters, low-rank updates, caches",
        source="Boue 2025, sections 6 to 8",
        rows=[*_parameters(), *_low_rank(), *_further(), *_equivariance(), *_cache(), *_multiplications()],
        notes=[
            "Parameters are those of our model on torch's meta device. Multiplications are counted by torch's counter.",
            "One low-rank pair updates the queries of all heads together, as published. With a pair for each head the "
            "number for all layers would be 8,336,656.",
            'The paper calls generation with a cache "linear instead of quadratic". That holds for one more token; a '
            "whole generation is quadratic instead of cubic.",
            "Rows with a formula are not printed in the paper.",
            "The paper's formulas for a cached step lack the factor 1/sqrt(d_head) and give the output n + 1 rows; "
            "ours has the factor and one row.",
        ],
    )


def n_parameters(module: nn.Module) -> int:
    return sum(value.numel() for value in module.parameters())


def _built(shape: GPTShape, rank: int | None = None) -> GPT:
    with torch.device("meta"):
        model = GPT(shape)
        if rank is not None:
            add_updates(model, rank)
            freeze(model)
    return model


def _exact(name: str, published: int, ours: int) -> ComparedValue:
    return value_row(name, f"{ours:,}", f"{published:,}", agrees=ours == published)


def _by_formula(name: str, formula: int, ours: int) -> ComparedValue:
    return value_row(name, f"{ours:,}", f"formula: {formula:,}", agrees=ours == formula)


def _share(name: str, published: str, ours: float, low: float, high: float) -> ComparedValue:
    return value_row(name, ours, published, agrees=low <= ours <= high)


def _parameters() -> Iterator[ComparedValue]:
    full, single = _built(BASE), _built(dataclasses.replace(BASE, n_blocks=1))
    tied = _built(dataclasses.replace(BASE, tied=True))
    assert full.head is not None
    yield _exact("one block, d = 768", 7_087_872, n_parameters(full.blocks[0]))
    yield _exact("model with 1 block", 85_120_849, n_parameters(single))
    yield _exact("model with 12 blocks", 163_087_441, n_parameters(full))
    yield _share("12 blocks over 1 block", "about twice", n_parameters(full) / n_parameters(single), 1.8, 2.2)
    yield _exact("head", 38_647_633, n_parameters(full.head))
    n_tied = n_parameters(tied)
    yield value_row("12 blocks, tied", f"{n_tied:,}", "about 124 million", agrees=round(n_tied / 1e6) == 124)
    yield _share("saved by tying", "24%", 1.0 - n_tied / n_parameters(full), 0.235, 0.245)
    for name, shape, published in _OTHERS:
        yield _by_formula(name, published, n_parameters(_built(shape)))


def _low_rank() -> Iterator[ComparedValue]:
    updated = _built(BASE, rank=16)
    n_whole = n_parameters(_built(BASE))
    assert updated.head is not None
    n_head = sum(value.numel() for value in updated.head.buffers() if value.dim())
    yield _exact("low-rank update of the head, r = 16", 816_400, n_parameters(updated.head))
    yield _share("of the head's own", "2%", n_parameters(updated.head) / n_head, 0.015, 0.025)
    yield _exact("low-rank updates of all layers, r = 16", 3_470_608, n_parameters(updated))
    yield _share("saved", "98%", 1.0 - n_parameters(updated) / n_whole, 0.975, 0.985)


def _further() -> Iterator[ComparedValue]:
    d, block = 768, _built(BASE).blocks[0]
    for name, part, published in (
        ("layer normalization: 2 d", block.get_submodule("ffn_norm"), 2 * d),
        ("attention with its projection: 4 (d^2 + d)", block.get_submodule("attention"), 4 * (d * d + d)),
        ("feed-forward part: 8 d^2 + 5 d", block.get_submodule("ffn"), 8 * d * d + 5 * d),
    ):
        yield _by_formula(name, published, n_parameters(part))


def _tokens(n_tokens: int) -> Tensor:
    return torch.randint(_SMALL.n_words, (1, n_tokens), generator=torch.Generator().manual_seed(1))


def _equivariance() -> Iterator[ComparedValue]:
    for name, published, is_causal in (
        ("permuted tokens, no mask, no positions: largest error", "permutes the output", False),
        ("the same with the causal mask", None, True),
    ):
        model = random_model(dataclasses.replace(_SMALL, positions="none", is_causal=is_causal))
        token_BT, order_T = _tokens(9), torch.tensor([3, 0, 8, 5, 1, 7, 2, 6, 4])
        with torch.no_grad():
            error = float((model(token_BT[:, order_T]) - model(token_BT)[:, order_T]).abs().max())
        agrees = None if published is None else error < 1e-12
        yield value_row(name, error, published, agrees=agrees)


def _cache() -> Iterator[ComparedValue]:
    model, token_BT = random_model(_SMALL), _tokens(24)
    caches: list[BlockCache] = []
    with torch.no_grad():
        by_step = torch.stack([next_logits(model, token_B, caches) for token_B in token_BT.T], 1)
        error = float((by_step - model(token_BT)).abs().max())
    yield value_row("cached generation less the full pass: largest error", error, "equal", agrees=error < 1e-12)


def _multiplications() -> Iterator[ComparedValue]:
    model, token_BT = random_model(_SMALL), _tokens(24)
    B, d, n = _SMALL.n_blocks, _SMALL.d_model, token_BT.shape[1]

    def cached() -> None:
        caches: list[BlockCache] = []
        for token_B in token_BT.T:
            next_logits(model, token_B, caches)

    full = _attention_products(lambda: model(token_BT))
    by_cache = _attention_products(cached)
    anew = _attention_products(lambda: [model(token_BT[:, : t + 1]) for t in range(n)])
    yield _by_formula(f"multiply-adds of attention, full pass of {n} tokens: 2 d n^2 a block", B * 2 * d * n * n, full)
    yield _by_formula("the same, generated with a cache: d n (n + 1)", B * d * n * (n + 1), by_cache)
    yield _by_formula("generated without: d n (n + 1) (2n + 1) / 3", B * d * n * (n + 1) * (2 * n + 1) // 3, anew)
    ratio, formula = anew / by_cache, (2 * n + 1) / 3
    yield value_row("without over with a cache: (2n + 1) / 3", ratio, formula, agrees=abs(ratio - formula) < 1e-9)


def _attention_products(run: Callable[[], object]) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_flop_counts()["Global"].get(torch.ops.aten.bmm, 0)) // 2


def random_model(shape: GPTShape, layer_norm_eps: float = 1e-5, rank: int | None = None) -> GPT:
    """In float64; gains and biases of LayerNorm are random too."""
    model = GPT(shape, layer_norm_eps=layer_norm_eps)
    if rank is not None:
        add_updates(model, rank, 1.7)
    model = model.double()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in model.parameters():
            noise = torch.randn(value.shape, generator=draw, dtype=torch.float64)
            value.copy_(noise / math.sqrt(value.shape[-1]) if value.dim() > 1 else value + 0.3 * noise)
    return model


def random_batch(n_words: int, n_tokens: int = 7) -> Batch:
    """One sequence with random tokens, targets and weights."""
    draw = torch.Generator().manual_seed(2)
    token, target = (torch.randint(n_words, (1, n_tokens), generator=draw) for _ in range(2))
    return {"token": token, "target": target, "weight": torch.rand(1, n_tokens, generator=draw, dtype=torch.float64)}


@dataclass(frozen=True, slots=True)
class BlockCache:
    """The keys and values of all tokens read so far, as `Attention.keys` and `Attention.values` give them."""

    key_BHTC: Tensor
    value_BHTE: Tensor


def next_logits(model: GPT, token_B: Tensor, caches: list[BlockCache]) -> Tensor:
    """A causal model's logits, (B, V), for one more token of each sequence. Extends `caches`, those of the blocks, in
    place; they are empty before the first token."""
    assert model.shape.is_causal
    n_before = caches[0].key_BHTC.shape[2] if caches else 0
    x_B1D = model.embedded(token_B.unsqueeze(1), first=n_before)
    seen_B1K = torch.ones(1, 1, n_before + 1, dtype=torch.bool, device=token_B.device)
    sight = Sight.of(seen_B1K, x_B1D.dtype)
    for index, module in enumerate(model.blocks):
        block = cast(TransformerBlock, module)
        normal_B1D = block.attention_norm(x_B1D)
        new = BlockCache(block.attention.keys(normal_B1D), block.attention.values(normal_B1D))
        if n_before:
            caches[index] = BlockCache(
                torch.cat([caches[index].key_BHTC, new.key_BHTC], 2),
                torch.cat([caches[index].value_BHTE, new.value_BHTE], 2),
            )
        else:
            caches.append(new)
        mixed_B1D, _ = block.attention.attend(normal_B1D, caches[index].key_BHTC, caches[index].value_BHTE, sight)
        x_B1D = block.finished(x_B1D + mixed_B1D)
    return model.logits(x_B1D)[:, 0]
