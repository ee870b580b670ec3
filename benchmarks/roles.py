"""Translators and their heads: fused and batched code against plain loops, in one run, on one thread.

    python benchmarks/roles.py [--out benchmarks/roles.json] [--quick] [--without-sweep]

- trainings: a pack of 64 against one training at a time with PyTorch's own encoder and decoder layers and Adam, at the
  same sizes and batches; and the share of a fused training's time that its probes take.
- heads: all role scores of all heads of 16 trainings at once, against one head at a time, sentence by sentence, in
  NumPy. The loop must find the same scores. It is timed on the first heads, and the time is scaled up.
- structure: exact distances to Sigma_3 over all (w, p), 1,000 heads at once, against the same dynamic program one head
  at a time. Both must find the same distances.
- sweep: `attnsweep run` of 256 trainings (2 passes over 5,000 sentences, 8 heads, 3 probes) on all cores, start to end.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnsweep.workloads.diagnostics.roles import Sentences, count_roles, role_scores
from attnsweep.workloads.diagnostics.structure import distances_to_blocks
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.translation import Translation, TranslationParameters
from attnsweep.workloads.translation.corpus import PAD
from attnsweep.workloads.translation.data import training_batches
from attnsweep.workloads.translation.looked_at import LookedAt, looked_at

REPEATS = 5
COMPARED = ("positional_share", "previous_token", "rare_token", "syntactic_gain")
"""The scores compared. The mass at the best offset is not among them: in random heads two offsets may tie."""


def main() -> None:
    """Measures and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="small sizes, only to see that it runs")
    parser.add_argument("--without-sweep", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    scale = 8 if options.quick else 1
    content: dict[str, Any] = {
        "benchmark": "roles",
        "name": platform.machine(),
        "load": [round(each, 1) for each in os.getloadavg()],
        "trainings": trainings(64 // scale, 40 // scale),
        "heads": heads(16 // scale, 24 // scale),
        "structure": [structure(1000 // scale, 32, 50 // scale, any_column=each) for each in (False, True)],
    }
    if not options.without_sweep:
        content["sweep"] = sweep(256 // scale)
    text = json.dumps(content, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def trainings(n_lanes: int, n_steps: int) -> dict[str, object]:
    """Milliseconds of a training's step, fused and alone, and the share of a fused training that probes take."""
    parameters = TranslationParameters(n_probes=3)
    # The first probe of a process makes its corpus and sentences.
    Pack(Translation(), [Training(parameters, 0)]).advance(1)
    pack = Pack(Translation(), [Training(parameters, seed) for seed in range(n_lanes)])
    started = time.perf_counter()
    pack.advance(1)
    probe_seconds = time.perf_counter() - started
    pack.advance(2)
    started = time.perf_counter()
    pack.advance(n_steps)
    step_seconds = (time.perf_counter() - started) / n_steps
    alone_seconds = one_training(parameters, n_steps)
    n_probes, total_steps = parameters.n_probes, parameters.n_steps
    return {
        "lanes": n_lanes,
        "fused_ms_a_training_step": round(1e3 * step_seconds / n_lanes, 3),
        "alone_ms_a_training_step": round(1e3 * alone_seconds, 3),
        "ratio": round(alone_seconds * n_lanes / step_seconds, 2),
        "probe_ms_a_training": round(1e3 * probe_seconds / n_lanes, 1),
        "probes_share_of_training": round(n_probes * probe_seconds / (total_steps * step_seconds), 3),
    }


class Plain(nn.Module):
    """The same translator from PyTorch's own layers."""

    def __init__(self, parameters: TranslationParameters, n_source: int, n_target: int) -> None:
        super().__init__()
        sizes: dict[str, Any] = {
            "d_model": parameters.d_model,
            "nhead": parameters.n_heads,
            "dim_feedforward": parameters.d_ffn,
            "dropout": 0.0,
            "batch_first": True,
            "norm_first": True,
        }
        self.source = nn.Embedding(n_source, parameters.d_model)
        self.target = nn.Embedding(n_target, parameters.d_model)
        self.position = nn.Parameter(torch.zeros(64, parameters.d_model), requires_grad=False)
        norm = nn.LayerNorm(parameters.d_model)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**sizes), 1, norm, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), 1, nn.LayerNorm(parameters.d_model))
        self.words = nn.Linear(parameters.d_model, n_target)

    def forward(self, source: Tensor, read: Tensor) -> Tensor:
        """(B, T, V) logits."""
        T = read.shape[1]
        memory = self.encoder(
            self.source(source) + self.position[: source.shape[1]], src_key_padding_mask=source == PAD
        )
        future = torch.ones(T, T, dtype=torch.bool).triu(1)
        decoded = self.decoder(
            self.target(read) + self.position[:T],
            memory,
            tgt_mask=future,
            tgt_key_padding_mask=read == PAD,
            memory_key_padding_mask=source == PAD,
        )
        logits: Tensor = self.words(decoded)
        return logits


def one_training(parameters: TranslationParameters, n_steps: int) -> float:
    """Seconds per step of a plain loop."""
    pack = Pack(Translation(), [Training(parameters, 0)])
    batches = training_batches(pack._lanes, range(n_steps + 3))
    shape = Translation().build(parameters).translator.shape
    model = Plain(parameters, shape.n_source_words, shape.n_target_words)
    optimizer = torch.optim.Adam(model.parameters(), lr=parameters.learning_rate)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=parameters.label_smoothing)
    started = 0.0
    for step, batch in enumerate(batches):
        if step == 3:
            started = time.perf_counter()
        optimizer.zero_grad()
        logits = model(batch["source"][0], batch["read"][0])
        criterion(logits.flatten(0, 1), batch["target"][0].flatten()).backward()
        optimizer.step()
    return (time.perf_counter() - started) / (len(batches) - 3)


def heads(n_lanes: int, n_looped: int) -> dict[str, object]:
    """Seconds for the role scores of the encoder's heads on 500 sentences, batched and looped."""
    parameters = TranslationParameters()
    parts = looked_at(parameters, torch.device("cpu"))
    n_heads = parameters.n_heads
    generator = torch.Generator().manual_seed(0)
    attention = [_random_attention(part, n_lanes, n_heads, generator) for part in parts]
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        counts = [
            count_roles(each, part.sentences["encoder_self"]) for each, part in zip(attention, parts, strict=True)
        ]
        scores = role_scores(sum(counts[1:], start=counts[0]))
        seconds.append(time.perf_counter() - started)
    flat = [each.flatten(0, 1).double().numpy() for each in attention]
    started = time.perf_counter()
    looped = [
        one_head([(each[head], part.sentences["encoder_self"]) for each, part in zip(flat, parts, strict=True)])
        for head in range(n_looped)
    ]
    loop_seconds = (time.perf_counter() - started) * n_lanes * n_heads / n_looped
    for name in COMPARED:
        found = scores[name].reshape(-1)[:n_looped]
        np.testing.assert_allclose(found, [each[name] for each in looped], atol=1e-5, err_msg=name)
    return {
        "heads": n_lanes * n_heads,
        "sentences": sum(len(part.batch["source"]) for part in parts),
        "batched_seconds": round(min(seconds), 3),
        "looped_seconds": round(loop_seconds, 2),
        "ratio": round(loop_seconds / min(seconds), 1),
    }


def _random_attention(part: LookedAt, n_lanes: int, n_heads: int, generator: torch.Generator) -> Tensor:
    B, S = part.batch["source"].shape
    logits = 3 * torch.randn(n_lanes, n_heads, B, S, S, generator=generator)
    return logits.masked_fill((part.batch["source"] == PAD)[:, None], -torch.inf).softmax(-1)


def one_head(batches: list[tuple[NDArray[np.float64], Sentences]]) -> dict[str, float]:
    """The scores of one head, sentence by sentence. The null of the rare-token score, 100 times that, is left out."""
    hits: dict[int, float] = {}
    mass: dict[int, float] = {}
    reach: dict[int, int] = {}
    n_queries, previous, total, n_rare, rare_hits = 0, 0.0, 0.0, 0, 0
    arcs_found = np.zeros((2, 64))
    arcs_by_offset = np.zeros((2, 64))
    n_arcs = np.zeros((2, 64))
    for attention, sentences in batches:
        arcs, rarity = sentences.arcs, sentences.rarity
        assert arcs is not None
        assert sentences.offsets is not None
        assert rarity is not None
        assert sentences.key_tokens is not None
        for b in range(len(attention)):
            queries: list[int] = np.flatnonzero(sentences.queries[b]).tolist()
            keys: list[int] = np.flatnonzero(sentences.keys[b]).tolist()
            ranks = rarity[sentences.key_tokens[b]].numpy()
            second = np.sort(ranks[keys])[::-1][: min(2, len(keys))][-1]
            is_rare = ranks[keys].max() >= sentences.n_frequent
            strongest: dict[int, int] = {}
            for i in queries:
                strongest[i] = keys[attention[b, i, keys].argmax()]
                total += attention[b, i].sum()
                for j in keys:
                    mass[j - i] = mass.get(j - i, 0.0) + attention[b, i, j]
                    reach[j - i] = reach.get(j - i, 0) + 1
                hits[strongest[i] - i] = hits.get(strongest[i] - i, 0) + 1
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
                    arcs_by_offset[d, r] += look + int(sentences.offsets[d, r]) == find
    share = {k: hits.get(k, 0) / reach[k] for k in reach if reach[k] >= 0.5 * n_queries}
    best = max(share, key=lambda k: share[k])
    measured = n_arcs >= 100
    gain = (arcs_found[measured] - arcs_by_offset[measured]) / n_arcs[measured]
    return {
        "positional_share": share[best],
        "positional_mass": mass[best] / reach[best],
        "previous_token": previous / total,
        "rare_token": rare_hits / n_rare,
        "syntactic_gain": gain.max(),
    }


def structure(n_heads: int, n_tokens: int, n_looped: int, *, any_column: bool) -> dict[str, object]:
    """Seconds for all heads, batched (the best of several) and looped (scaled up)."""
    generator = torch.Generator().manual_seed(0)
    attention = (3 * torch.randn(n_heads, n_tokens, n_tokens, generator=generator, dtype=torch.float64)).softmax(-1)
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        found = distances_to_blocks(attention, any_column=any_column)
        seconds.append(time.perf_counter() - started)
    started = time.perf_counter()
    looped = [blocks_of_one_head(head, any_column=any_column) for head in attention[:n_looped].numpy()]
    loop_seconds = (time.perf_counter() - started) * n_heads / len(looped)
    np.testing.assert_allclose(np.stack(looped), found[:n_looped].numpy(), atol=1e-10)
    return {
        "variant": "any column" if any_column else "first column",
        "heads": n_heads,
        "tokens": n_tokens,
        "batched_seconds": round(min(seconds), 3),
        "looped_seconds": round(loop_seconds, 2),
        "ratio": round(loop_seconds / min(seconds), 1),
    }


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
    with tempfile.TemporaryDirectory() as place:
        command = [
            sys.executable,
            "-c",
            "from attnsweep.orchestrator.cli import main; main()",
            "run",
            "head_roles",
            "--json",
        ]
        command += ["--dir", f"{place}/sweep", "--trials", str(n_trainings // 4), "--replicates", "4"]
        command += [f"--set={each}" for each in fixed]
        environment = os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{place}/mlflow.db"}
        started = time.perf_counter()
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        seconds = time.perf_counter() - started
    told = json.loads(done.stdout.splitlines()[-1])
    return {
        "trainings": told["trainings"],
        "cores": os.cpu_count(),
        "seconds": round(told["seconds"], 1),
        "seconds_with_start": round(seconds, 1),
        "outcomes": told["outcomes"],
    }


if __name__ == "__main__":
    main()
