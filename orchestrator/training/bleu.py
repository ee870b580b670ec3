"""Corpus BLEU of the sentences that trainings have written, by sacrebleu.

Sentences are tokens separated by spaces. The score compares trainings on one corpus. It is not comparable with the
score of a published system, which is computed on plain text with sacrebleu's own tokens.

Source: Papineni et al. 2002, "BLEU: a method for automatic evaluation of machine translation"; Post 2018, "A call for
clarity in reporting BLEU scores".
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import Workload, Written
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult


def score_written(workload: Workload[Any], pack: Pack[Any], result: PackResult) -> dict[str, NDArray[np.float64]]:
    """Returns the BLEU score `bleu_<set>`, (L,) over lanes, for each set of sentences that the trainings translated;
    NaN where a training did not end normally."""
    ended = np.flatnonzero(~result.is_cut_short)
    scores: dict[str, NDArray[np.float64]] = {}
    if not ended.size:
        return scores
    for lane, sets in zip(ended, workload.write(*pack.final_state(ended)), strict=True):
        for written in sets:
            score = scores.setdefault(f"bleu_{written.name}", np.full(len(result.diverged_step), np.nan))
            score[lane] = bleu(written)
    return scores


def bleu(written: Written) -> float:
    """Returns the corpus BLEU score, 0 to 100; NaN for an empty set."""
    if not written.references:
        return float("nan")
    # sacrebleu is imported only here, because a trainer whose workload writes no texts need not load it.
    from sacrebleu import corpus_bleu

    # `force=True` suppresses sacrebleu's warning that the text is already tokenized.
    score = corpus_bleu(list(written.hypotheses), [list(written.references)], tokenize="none", force=True)
    return float(score.score)
