"""Translators and their heads: fused and batched code against plain loops, in one run, on one thread.

    python benchmarks/roles.py [--out benchmarks/roles.json] [--quick] [--without-sweep]

- trainings: a pack of 64 against one training at a time with PyTorch's own encoder and decoder layers and Adam, at the
  same sizes and batches. `probes.py` measures what their probes take.
- heads: all role scores of all heads of 16 trainings at once, against one head at a time, sentence by sentence, in
  NumPy. The loop must find the same scores. It is timed on the first heads, and the time is scaled up.
- structure: exact distances to Sigma_3 over all (w, p), 1,000 heads at once, against the same dynamic program one head
  at a time. Both must find the same distances.
- sweep: `attnsweep run` of 256 trainings (2 passes over 5,000 sentences, 8 heads, 3 probes) on all cores, start to end.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from harness import attnsweep_command, main, spent_by, timed
from numpy.typing import NDArray
from torch import Tensor, nn

from attnsweep.workloads.diagnostics.roles.counts import count_roles
from attnsweep.workloads.diagnostics.roles.scores import role_scores
from attnsweep.workloads.diagnostics.roles.sentences import Sentences
from attnsweep.workloads.diagnostics.structure import distances_to_blocks
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.translation import Translation, TranslationParameters
from attnsweep.workloads.translation.corpus import PAD
from attnsweep.workloads.translation.data import training_batches
from attnsweep.workloads.translation.head_scores import LookedAt, looked_at

REPEATS = 5
COMPARED = ("positional_share", "previous_token", "rare_token", "syntactic_gain")
"""The scores compared. The mass at the best offset is not among them: in random heads two offsets may tie."""


def measure(*, quick: bool = False, without_sweep: bool = False) -> dict[str, Any]:
    """Measures all parts."""
    torch.set_num_threads(1)
    scale = 8 if quick else 1
    distances = [structure(1000 // scale, 32, 50 // scale, any_column=each) for each in (False, True)]
    rows = [heads(16 // scale, 24 // scale), *distances]
    found = {"trainings": trainings(64 // scale, 40 // scale), "rows": rows}
    return found if without_sweep else found | {"sweep": sweep(256 // scale)}


def trainings(n_lanes: int, n_steps: int) -> dict[str, object]:
    """Milliseconds of a training's step, fused and alone."""
    parameters = TranslationParameters(n_probes=3)
    pack = Pack(Translation(), [Training(parameters, seed) for seed in range(n_lanes)])
    pack.advance(3)
    step_seconds = timed(lambda: pack.advance(n_steps)) / n_steps
    alone_seconds = one_training(parameters, n_steps)
    return {
        "lanes": n_lanes,
        "fused_ms_a_training_step": round(1e3 * step_seconds / n_lanes, 3),
        "alone_ms_a_training_step": round(1e3 * alone_seconds, 3),
        "ratio": round(alone_seconds * n_lanes / step_seconds, 2),
    }


class Plain(nn.Module):
    """The same translator from PyTorch's own layers."""

    def __init__(self, parameters: TranslationParameters, n_source: int, n_target: int) -> None:
        super().__init__()
        d, heads, d_ffn = parameters.d_model, parameters.n_heads, parameters.d_ffn
        self.source, self.target, self.words = (
            nn.Embedding(n_source, d),
            nn.Embedding(n_target, d),
            nn.Linear(d, n_target),
        )
        self.position = nn.Parameter(torch.zeros(64, d), requires_grad=False)
        self.body = nn.Transformer(d, heads, 1, 1, d_ffn, dropout=0.0, batch_first=True, norm_first=True)

    def forward(self, source: Tensor, read: Tensor) -> Tensor:
        """(B, T, V) logits."""
        T, padded = read.shape[1], source == PAD
        embedded = self.source(source) + self.position[: source.shape[1]], self.target(read) + self.position[:T]
        masks = {"tgt_mask": torch.ones(T, T, dtype=torch.bool).triu(1), "tgt_key_padding_mask": read == PAD}
        masks |= {"src_key_padding_mask": padded, "memory_key_padding_mask": padded}
        logits: Tensor = self.words(self.body(*embedded, **masks))
        return logits


def one_training(parameters: TranslationParameters, n_steps: int) -> float:
    """Seconds per step of a plain loop, after three steps to warm up."""
    pack = Pack(Translation(), [Training(parameters, 0)])
    batches = training_batches(pack._store.lanes, range(n_steps + 3))
    shape = Translation().build(parameters).translator.shape
    model = Plain(parameters, shape.n_source_words, shape.n_target_words)
    optimizer = torch.optim.Adam(model.parameters(), lr=parameters.learning_rate)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=parameters.label_smoothing)

    def train(some: Sequence[dict[str, Tensor]]) -> None:
        for batch in some:
            optimizer.zero_grad()
            logits = model(batch["source"][0], batch["read"][0])
            criterion(logits.flatten(0, 1), batch["target"][0].flatten()).backward()
            optimizer.step()

    train(batches[:3])
    return timed(lambda: train(batches[3:])) / n_steps


def heads(n_lanes: int, n_looped: int) -> dict[str, object]:
    """Seconds for the role scores of the encoder's heads on 500 sentences, batched and looped."""
    parameters = TranslationParameters()
    parts = looked_at(parameters, torch.device("cpu"))
    sentences = [part.sentences["encoder_self"] for part in parts]
    generator = torch.Generator().manual_seed(0)
    attention = [_random_attention(part, n_lanes, parameters.n_heads, generator) for part in parts]

    def batched() -> dict[str, NDArray[np.float64]]:
        first, *others = (count_roles(each, of) for each, of in zip(attention, sentences, strict=True))
        return role_scores(sum(others, start=first))

    flat = [each.flatten(0, 1).double().numpy() for each in attention]

    def looped() -> list[dict[str, float]]:
        return [
            one_head([(each[head], of) for each, of in zip(flat, sentences, strict=True)]) for head in range(n_looped)
        ]

    scores, each = batched(), looped()
    for name in COMPARED:
        np.testing.assert_allclose(
            scores[name].reshape(-1)[:n_looped], [one[name] for one in each], atol=1e-5, err_msg=name
        )
    return {"what": "role scores", **_compared(batched, looped, n_lanes * parameters.n_heads / n_looped)} | {
        "heads": n_lanes * parameters.n_heads,
        "sentences": sum(len(part.batch["source"]) for part in parts),
    }


def _compared(batched: Callable[[], object], looped: Callable[[], object], times: float) -> dict[str, float]:
    """Seconds of all heads, batched (the best of several) and looped (scaled up)."""
    batched_seconds, looped_seconds = min(timed(batched) for _ in range(REPEATS)), timed(looped) * times
    return {
        "batched_seconds": round(batched_seconds, 3),
        "looped_seconds": round(looped_seconds, 2),
        "ratio": round(looped_seconds / batched_seconds, 1),
    }


def _random_attention(part: LookedAt, n_lanes: int, n_heads: int, generator: torch.Generator) -> Tensor:
    B, S = part.batch["source"].shape
    logits = 3 * torch.randn(n_lanes, n_heads, B, S, S, generator=generator)
    return logits.masked_fill((part.batch["source"] == PAD)[:, None], -torch.inf).softmax(-1)


def one_head(batches: list[tuple[NDArray[np.float64], Sentences]]) -> dict[str, float]:
    """The scores of one head, sentence by sentence. The null of the rare-token score, 100 times that, is left out."""
    hits, reach = Counter[int](), Counter[int]()
    n_queries, previous, total, n_rare, rare_hits = 0, 0.0, 0.0, 0, 0
    arcs_found, arcs_by_offset, n_arcs = np.zeros((3, 2, 64))
    for attention, sentences in batches:
        arcs, rarity, offsets, tokens = sentences.arcs, sentences.rarity, sentences.offsets, sentences.key_tokens
        assert arcs is not None and rarity is not None and offsets is not None and tokens is not None  # noqa: PT018
        for b in range(len(attention)):
            queries: list[int] = np.flatnonzero(sentences.queries[b]).tolist()
            keys: list[int] = np.flatnonzero(sentences.keys[b]).tolist()
            ranks = rarity[tokens[b]].numpy()
            second = np.sort(ranks[keys])[::-1][: min(2, len(keys))][-1]
            is_rare = ranks[keys].max() >= sentences.n_frequent
            strongest: dict[int, int] = {}
            for i in queries:
                strongest[i] = keys[attention[b, i, keys].argmax()]
                total += attention[b, i].sum()
                reach.update(j - i for j in keys)
                hits[strongest[i] - i] += 1
                previous += attention[b, i, i - 1] if i - 1 in keys else 0.0
                rare_hits += is_rare and ranks[strongest[i]] >= second
                n_rare += is_rare
            n_queries += len(queries)
            for a in np.flatnonzero(arcs.sentence.numpy() == b):
                r = int(arcs.relation[a])
                ends = int(arcs.dependent[a]), int(arcs.governor[a])
                for d, (look, find) in enumerate((ends, ends[::-1])):
                    n_arcs[d, r] += 1
                    arcs_found[d, r] += strongest[look] == find
                    arcs_by_offset[d, r] += look + int(offsets[d, r]) == find
    measured = n_arcs >= 100
    return {
        "positional_share": max(hits[k] / reach[k] for k in reach if reach[k] >= 0.5 * n_queries),
        "previous_token": previous / total,
        "rare_token": rare_hits / n_rare,
        "syntactic_gain": ((arcs_found - arcs_by_offset)[measured] / n_arcs[measured]).max(),
    }


def structure(n_heads: int, n_tokens: int, n_looped: int, *, any_column: bool) -> dict[str, object]:
    """Seconds for the distances of all heads, batched and looped."""
    generator = torch.Generator().manual_seed(0)
    attention = (3 * torch.randn(n_heads, n_tokens, n_tokens, generator=generator, dtype=torch.float64)).softmax(-1)

    def batched() -> Tensor:
        return distances_to_blocks(attention, any_column=any_column)

    def looped() -> list[NDArray[np.float64]]:
        return [blocks_of_one_head(head, any_column=any_column) for head in attention[:n_looped].numpy()]

    np.testing.assert_allclose(np.stack(looped()), batched()[:n_looped].numpy(), atol=1e-10)
    what = f"Sigma_3, on {'any' if any_column else 'the first'} column"
    return {"what": what, **_compared(batched, looped, n_heads / n_looped), "heads": n_heads, "tokens": n_tokens}


def blocks_of_one_head(head: NDArray[np.float64], *, any_column: bool) -> NDArray[np.float64]:
    """(T, T + 1) the distances of one head; that of (w, p) is at [w - 1, p]."""
    T = len(head)
    row_sum = head.sum(1, keepdims=True)
    cost = (row_sum - head) + np.abs(1.0 - head)
    saved = cost.diagonal()[:, None] - cost
    found = np.full((T, T + 1), np.inf)
    for w in range(1, T + 1):
        most = T // w
        best = np.full((T + 1, most + 1), -np.inf)
        best[:, 0] = 0.0
        for i in range(w, T + 1):
            start = i - w
            columns = range(start, i) if any_column else [start]
            gain = max(saved[start:i, column].sum() for column in columns)
            for p in range(1, most + 1):
                best[i, p] = max(best[i - 1, p], best[start, p - 1] + gain)
        found[w - 1, : most + 1] = cost.trace() - best[-1]
    return found


def sweep(n_trainings: int) -> dict[str, object]:
    """Runs a whole sweep by the command line; returns its times."""
    fixed = ("n_heads=8", "n_epochs=2", "n_probes=3", "layer_norm_convention=inside_root")
    course = ("--trials", str(n_trainings // 4), "--replicates", "4", *(f"--set={each}" for each in fixed))
    with tempfile.TemporaryDirectory() as place:
        command = attnsweep_command("run", "head_roles", "--json", "--dir", "sweep", *course)
        spent = spent_by(command, place, MLFLOW_TRACKING_URI=f"sqlite:///{place}/mlflow.db")
    told = json.loads(spent.stdout.splitlines()[-1])
    return {
        "trainings": told["trainings"],
        "seconds": round(told["seconds"], 1),
        "outcomes": told["outcomes"],
        "with_start": spent.figures(),
    }


if __name__ == "__main__":
    main(measure)
