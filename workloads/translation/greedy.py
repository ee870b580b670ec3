"""Greedy decoding: the likeliest next word, again and again. Axes: L lane, B sentence, T target token, V word."""

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.functional import over_lanes
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.translation.corpus import EOS, PAD, SOS


def greedy_words(
    template: nn.Module, parameters: State, buffers: State, sources: Batch, rarity_V: Tensor, n_words: int
) -> Tensor:
    """(L, B, T) int64: what each training writes for each source; PAD from its EOS on.

    Args:
        template: Gives the logits (B, T, V) of a batch.
        parameters, buffers: Of the trainings.
        sources: `source` and `source_rarity`, (L, B, S).
        rarity_V: Of the target's words.
        n_words: The most that are written: what has not ended is cut.
    """
    last_logit = over_lanes(template, lambda module, batch: module(batch)[:, -1])
    source_LBS = sources["source"]
    read_LBT = torch.full((*source_LBS.shape[:2], 1), SOS, device=source_LBS.device)
    has_ended_LB = torch.zeros(source_LBS.shape[:2], dtype=torch.bool, device=source_LBS.device)
    with torch.no_grad():
        while read_LBT.shape[2] <= n_words and not has_ended_LB.all():
            batch = sources | {"read": read_LBT, "read_rarity": rarity_V[read_LBT]}
            word_LB = last_logit(parameters, buffers, batch).argmax(-1)
            has_ended_LB = has_ended_LB | (word_LB == EOS)
            read_LBT = torch.cat([read_LBT, word_LB.masked_fill(has_ended_LB, PAD).unsqueeze(-1)], dim=-1)
    return read_LBT[..., 1:]
