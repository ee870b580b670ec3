"""Lenses (views into a trained model) of the category-pairs models: attention maps on a text, and the gradients as sums
of matrix products ("words").

The words of system P, and of system C without softmax, are in closed form, averaged over all texts (derivation:
docs/theory.md, systems P and C). For other models they are averaged over the texts of a batch, and grouped by the
current and the previous category.

Axes: M position, N category, K = M - 1 predicted position, R row of k and q, S token row.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from attnsweep.workloads.category_pairs.categories_only import CategoriesOnly
from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly, components, mean, shift
from attnsweep.workloads.category_pairs.workload import CategoryPairs
from attnsweep.workloads.engine.contract import Batch, Lanes, Workload
from attnsweep.workloads.head_maps import LayerMaps, SentenceMaps, chosen
from attnsweep.workloads.lenses import Lenses
from attnsweep.workloads.words.terms import AttentionMap, GradientWords, Term, evenness

_REST = "I - P"
_MEAN = "P"
_LOGITS = "logits"
"""The placeholder for the weight of terms of the gradient with respect to the product k^t q. `_by_trained_weights`
replaces it by the names of the trained matrices: k and q, or the product."""


def words_of_positions(system: PositionsOnly, *, softmax: bool = False) -> GradientWords:
    """Splits each gradient of the expected loss over all texts into terms that add up to it, in float64, for the model
    whose attention depends on positions only.

    The model is system P of docs/theory.md. The terms are the gradient's "words".
    """
    v_NN, logits_MK = system.v_NN.detach().double(), system.logits().detach().double()
    q_MK = logits_MK.softmax(0) if softmax else logits_MK
    N, M = system.n_categories, system.n_positions
    a, b, A, B = components(v_NN)
    mean_NN = mean(N)
    rest_NN = torch.eye(N, dtype=torch.float64) - mean_NN
    p, s_K = q_MK.diagonal().sum(), q_MK.sum(0)
    everywhere_MK = torch.ones_like(q_MK)
    terms = [
        _pull(_LOGITS, _REST, "tr(v (I - P)) U", a * shift(M)),
        _brake(_LOGITS, _REST, "|v (I - P)|^2 q", A * q_MK),
        _pull(_LOGITS, _MEAN, "tr(v P) 1 1'", b * everywhere_MK),
        _brake(_LOGITS, _MEAN, "|v P|^2 1 1' q", B * s_K * everywhere_MK),
        _pull("v_NN", _REST, "tr(U' q) (I - P)", p * rest_NN),
        _brake("v_NN", _REST, "|q|^2 v (I - P)", q_MK.square().sum() * v_NN @ rest_NN),
        _pull("v_NN", _MEAN, "(1' q 1) P", s_K.sum() * mean_NN),
        _brake("v_NN", _MEAN, "|1' q|^2 v P", s_K.square().sum() * v_NN @ mean_NN),
    ]
    if softmax:
        terms = [_through_softmax(term, q_MK) for term in terms]
    weights = _weights_of(system)
    reads = "A is the softmax of the columns of q; " if softmax else ""
    return GradientWords(
        terms=list(_by_trained_weights(terms, 2 / N, weights)),
        weights=weights,
        zero_levels={_REST: (M - 1) * (1 - 1 / N), _MEAN: (M - 1) / N},
        is_opposed=bool(a * b < 0),
        legend=f"E = X U - v X {'A' if softmax else 'q'}, averaged over all texts; U shifts by one position, P is the "
        f"mean over categories; {reads}all words times 2/N",
        maps=[_map(q_MK, softmax)],
    )


def words_of_categories(system: CategoriesOnly) -> GradientWords:
    """Splits the gradients of a model with attention by categories into matrix products ("words") that add up to them,
    in float64. The model has no softmax, and its loss is averaged over all possible texts.

    Each word concerns either the mean target given the current category (part P), or the rest of the target.
    """
    v_KM, q_NN = system.v_KM.detach().double(), system.logits().detach().double()
    target_NN = system.target_NN.double()
    N, (K, M) = target_NN.shape[0], v_KM.shape
    own_KM, before_KM = torch.eye(M, dtype=torch.float64)[1:], torch.eye(K, M, dtype=torch.float64)
    other_KM = 1 - own_KM
    d_K, sg_K = (v_KM * own_KM).sum(1), (v_KM * other_KM).sum(1)
    m_N, target_m_N, D_N = q_NN.mean(0), target_NN.mean(0), q_NN.diagonal()
    rest_NN, target_rest_NN = q_NN - m_N, target_NN - target_m_N
    predicted_KN = torch.outer(sg_K, m_N) + torch.outer(d_K, D_N)
    wanted_KN = target_m_N.expand(K, N)

    def by_values(mean_KN: Tensor) -> Tensor:
        return (mean_KN @ m_N / N)[:, None] * other_KM + (mean_KN @ D_N / N)[:, None] * own_KM

    def by_logits(mean_KN: Tensor) -> Tensor:
        return (sg_K @ mean_KN / N).expand(N, N) / N + torch.diag(d_K @ mean_KN) / N

    n_others = (v_KM * other_KM).square().sum()
    terms = [
        _pull(_LOGITS, _REST, "(Sum p) q*~", v_KM.diagonal().sum() * target_rest_NN / N**2),
        _brake(_LOGITS, _REST, "(Sum n) q~", n_others * rest_NN / N**2),
        _pull(_LOGITS, _MEAN, "Sum_i m* (sg_i + d_i [r = t])", by_logits(wanted_KN)),
        _brake(_LOGITS, _MEAN, "Sum_i (sg_i m + d_i D) (sg_i + d_i [r = t])", by_logits(predicted_KN)),
        _pull("v_KM", _REST, "E[q*~ q~] U", (rest_NN * target_rest_NN).mean() * before_KM),
        _brake("v_KM", _REST, "E[q~ q~] v, j != i", rest_NN.square().mean() * v_KM * other_KM),
        _pull("v_KM", _MEAN, "E[m* m]; j = i: E[m* D]", by_values(wanted_KN)),
        _brake("v_KM", _MEAN, "E[(sg_i m + d_i D) m]; j = i: D", by_values(predicted_KN)),
    ]
    weights = _weights_of(system)
    levels = {_REST: K * float(target_rest_NN.square().mean()), _MEAN: K * float(target_m_N.square().mean())}
    return GradientWords(
        terms=list(_by_trained_weights(terms, 2.0, weights)),
        weights=weights,
        zero_levels=levels,
        is_opposed=False,
        legend="averaged over all texts; m(t) is the mean of q(r, t) over r, q~ = q - m, D(t) = q(t, t), * marks the "
        "target; of row i of v: p predecessor, d own, sg and n sum and squares of the rest; all words times 2",
        maps=[_map(q_NN, softmax=False)],
    )


def _through_softmax(term: Term, weights_MK: Tensor) -> Term:
    """Converts a gradient term with respect to attention weights into one with respect to the logits before the
    softmax.

    In the term's text, A stands for the attention weights.
    """
    text = re.sub(r"\bq\b", "A", term.text)
    if term.weight != _LOGITS:
        return replace(term, text=text)
    value = weights_MK * (term.value - (weights_MK * term.value).sum(0))
    sign, word = ("-", text[1:]) if term.kind == "pull" else ("", text)
    return replace(term, text=f"{sign}aa(q, {word})", value=value)


def _map(weights_TQ: Tensor, softmax: bool) -> AttentionMap:
    by_query = weights_TQ.T
    return AttentionMap(
        name="attention" if softmax else "attention, without a softmax",
        weights_QT=by_query,
        evenness=float(evenness(by_query).mean()) if softmax else None,
    )


def _pull(weight: str, part: str, text: str, value: Tensor) -> Term:
    return Term(weight=weight, part=part, kind="pull", text=f"-{text}", value=-value)


def _brake(weight: str, part: str, text: str, value: Tensor) -> Term:
    return Term(weight=weight, part=part, kind="brake", text=text, value=value)


def _weights_of(system: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().double() for name, value in system.named_parameters()}


def _by_trained_weights(terms: list[Term], factor: float, weights: Mapping[str, Tensor]) -> Iterator[Term]:
    """Converts the gradient's terms for the product of keys and queries into terms for the weights that are trained.
    All terms are multiplied by `factor`.

    If k and q are trained separately, a term S with respect to k^t q becomes q S' for k, and k S for q (chain rule).
    """
    q = next(name for name in weights if name.startswith("q_"))
    k = next((name for name in weights if name.startswith("k_")), None)
    for term in terms:
        value = factor * term.value
        if term.weight != _LOGITS:
            yield replace(term, value=value)
        elif k is None:
            yield replace(term, weight=q, value=value)
        else:
            sign, word = ("-", term.text[1:]) if term.kind == "pull" else ("", term.text)
            yield replace(term, weight=k, text=f"{sign}q ({word})'", value=weights[q] @ value.T)
            yield replace(term, weight=q, text=f"{sign}k ({word})", value=weights[k] @ value)


def _maps(workload: Workload[Any], model: nn.Module, lanes: Lanes[Any], sentence: int | None) -> SentenceMaps | None:
    """Returns the attention weights on one text, for a model with a feed-forward part; `None` for attention alone. The
    queries are those at all positions but the first, where nothing is predicted.
    """
    if not isinstance(model, FullModel):
        return None
    text_BM = workload.eval_batch(lanes)["text"][0]
    number = chosen(sentence, len(text_BM))
    text_M = text_BM[number]
    category_MN = one_hot(text_M, model.n_categories).to(model.v_VV)
    position_MM = torch.eye(model.n_positions).to(model.v_VV)
    token_MS = {
        "solution_1": position_MM,
        "solution_2": category_MN,
        "solution_3": position_MM,
        "combined": torch.cat([category_MN, position_MM], dim=1),
    }[model.variant]
    logit_MM = token_MS @ model.logits() @ token_MS.T
    weight_MM = logit_MM.softmax(0) if lanes.shared.attention_activation == "softmax" else logit_MM
    keys = tuple(str(category + 1) for category in text_M.tolist())
    layer = LayerMaps.of(0, keys[1:], keys, weight_MM.T[None, 1:])
    return SentenceMaps(number=number, n_sentences=len(text_BM), text=" ".join(keys), layers=(layer,))


def _closed_form_words(parameters: CategoryPairsParameters, module: nn.Module) -> GradientWords | None:
    if isinstance(module, PositionsOnly):
        return words_of_positions(module, softmax=parameters.attention_activation == "softmax")
    if isinstance(module, CategoriesOnly) and parameters.attention_activation == "identity":
        return words_of_categories(module)
    return None


def _whole_loss(module: nn.Module, batch: Batch) -> Tensor:
    """Returns the training loss, computed on all texts of a batch at once, even for a model (`FullModel`) that
    otherwise computes it on a few texts at a time.
    """
    if isinstance(module, FullModel):
        loss: Tensor = module(_texts(module, batch))[0] + module.leaning_loss()
        return loss
    return CategoryPairs().loss(module, batch)


def _neighbours(module: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
    """Returns the categories of the current and of the previous token of each prediction: (n_texts, n_predicted) for a
    `FullModel`, (n_predicted, n_texts) for other models.
    """
    text_BM = _texts(module, batch)
    current, previous = text_BM[:, 1:], text_BM[:, :-1]
    if not isinstance(module, FullModel):
        current, previous = current.T, previous.T
    return {"current": current, "previous": previous}


def _texts(module: nn.Module, batch: Batch) -> Tensor:
    """Returns the texts (n_texts, n_positions) of the batch, or the training's own fixed sample if the batch is
    empty.
    """
    return batch["text"] if batch else cast(Tensor, module.text_BM)


LENSES = Lenses(maps=_maps, groups=_neighbours, loss=_whole_loss, words=_closed_form_words)
