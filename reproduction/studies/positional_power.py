"""Would a positional head be found? Heads of trained translators with attention planted at one offset.

Axes: L lane, H head, B sentence, Q query, K key.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from attnsweep.orchestrator.analysis.rates.intervals import pooled_rate
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.rows import estimate_row
from attnsweep.reproduction.threads import one_thread
from attnsweep.workloads.diagnostics.roles import Sentences, count_roles, label_roles, role_scores
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.functional import over_lanes
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.translation import Translation
from attnsweep.workloads.translation.looked_at import looked_at
from attnsweep.workloads.translation.model import TranslationModel

LAYERS = {"encoder_self": (-1, 0, 1), "decoder_self": (-1, 0)}
"""The offsets that are planted, by layer; the decoder sees nothing after its own position."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is trained and planted.

    Attributes:
        n_trainings: Translators, with the default parameters of the workload.
        first_seed: Of their seeds.
        n_epochs: Passes over the 5,000 sentences.
        masses: The shares of attention that are moved to the offset.
        n_sentences: Held-out sentences that heads are judged on.
    """

    n_trainings: int = 32
    first_seed: int = 0
    n_epochs: int = 2
    masses: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)
    n_sentences: int = 200


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains 32 translators, and plants."""
    del directory
    return compare(console, Size())


def compare(console: Console, size: Size) -> Comparison:
    """Trains translators, and labels their heads with attention planted."""
    console.print(f"training {size.n_trainings} translators")
    with one_thread():
        parts = list(_trained(size))
        rows = [row for mass in size.masses for row in _found(parts, mass)]
    return Comparison(
        title="Would a positional head be found?",
        source="attnsweep, docs/translation.md",
        rows=rows,
        notes=[
            "A share of each head's attention is moved to one offset (where the sentence has a key there); the rest of "
            "its attention stays. Heads of one training are no independent trials: the intervals are over trainings."
        ],
    )


Part = tuple[str, Tensor, Sentences]
"""A layer, the attention (L, H, B, Q, K) of all heads in it, and the sentences of one bucket."""


def _trained(size: Size) -> Iterator[Part]:
    workload = Translation()
    values = {"n_epochs": size.n_epochs, "head_sentences": size.n_sentences, "test_sentences": 0}
    trainings = [Training(defaults(workload, **values), size.first_seed + at) for at in range(size.n_trainings)]
    pack = Pack(workload, trainings)
    while not pack.advance(10_000):
        pass
    lanes, state = pack.final_state(np.arange(len(trainings)))
    template = workload.build(lanes.shared)
    names = {name for name, _ in template.named_parameters()}
    parameters = {name: value for name, value in state.items() if name in names}
    buffers = {name: value for name, value in state.items() if name not in names}
    attend = over_lanes(template, lambda module, batch: cast(TranslationModel, module).attention(batch))
    for part in looked_at(lanes.shared, lanes.device):
        batch = {name: value.expand(len(trainings), *value.shape) for name, value in part.batch.items()}
        with torch.no_grad():
            attention = attend(parameters, buffers, batch)
        for layer in LAYERS:
            yield layer, attention[layer].transpose(1, 2), part.sentences[layer]


def _found(parts: list[Part], mass: float) -> Iterator[ComparedValue]:
    for layer, offsets in LAYERS.items():
        labels = np.concatenate([_labels(parts, layer, offset, mass) for offset in offsets], axis=1)
        is_found = labels == "positional"
        rate = pooled_rate([(each.size, int(each.sum())) for each in is_found])
        assert rate.interval is not None
        name = f"{layer}, share {mass:g} of the attention planted: labelled positional"
        yield estimate_row(name, *rate.interval, None, None)


def _labels(parts: list[Part], layer: str, offset: int, mass: float) -> NDArray[np.str_]:
    """(L, H)"""
    counts = [
        count_roles(planted(attention, sentences, offset, mass), sentences)
        for each, attention, sentences in parts
        if each == layer
    ]
    return label_roles(role_scores(reduce(add, counts)))


def planted(attention_LHBQK: Tensor, sentences: Sentences, offset: int, mass: float) -> Tensor:
    """The attention with a share moved to one offset, where a query may see a key there."""
    Q, K = attention_LHBQK.shape[-2:]
    at_offset_QK = torch.arange(K) - torch.arange(Q).unsqueeze(1) == offset
    aim_BQK = (at_offset_QK & sentences.allowed()).to(attention_LHBQK.dtype)
    share_BQ1 = mass * aim_BQK.sum(-1, keepdim=True)
    return (1 - share_BQ1) * attention_LHBQK + share_BQ1 * aim_BQK
