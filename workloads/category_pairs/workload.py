"""The workload of category pairs."""

from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import one_hot

from attnsweep.workloads.category_pairs.categories_only import CategoriesOnly
from attnsweep.workloads.category_pairs.certificates import certify
from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.category_pairs.head_scores import SCORE_NAMES, score_full_heads
from attnsweep.workloads.category_pairs.outcomes import VERDICTS, full_measures, reference_levels
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from attnsweep.workloads.diagnostics.promotion import certify_by_promotion
from attnsweep.workloads.engine.contract import Batch, Certificate, HeadScores, Lanes, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.schedule import probe_steps
from attnsweep.workloads.head_maps import SentenceMaps, chosen
from attnsweep.workloads.lenses import Lenses

System = PositionsOnly | CategoriesOnly

_EVAL_TEXTS = 2048
"""For systems P and C, if the loss over all texts has no closed form."""
_FULL_EVAL_TEXTS = 256
"""For full models: 12,544 predicted positions with 50 positions a text."""


def _maps(workload: Workload[Any], model: nn.Module, lanes: Lanes[Any], sentence: int | None) -> SentenceMaps | None:
    """`None` for attention alone. At the first position nothing is predicted."""
    if not isinstance(model, FullModel):
        return None
    text_BM = workload.eval_batch(lanes)["text"][0]
    number = chosen(sentence, len(text_BM))
    category_MN = one_hot(text_BM[number], model.n_categories).to(model.v_VV)
    position_MM = torch.eye(model.n_positions).to(model.v_VV)
    by_variant = {"solution_2": category_MN, "combined": torch.cat([category_MN, position_MM], dim=1)}
    token_MS = by_variant.get(model.variant, position_MM)
    logit_MM = token_MS @ model.logits() @ token_MS.T
    weight_MM = logit_MM.softmax(0) if lanes.shared.attention_activation == "softmax" else logit_MM
    keys = tuple(str(category + 1) for category in text_BM[number].tolist())
    return SentenceMaps.of(number, len(text_BM), " ".join(keys), (keys[1:], keys, weight_MM.T[None, 1:]))


class CategoryPairs(Workload[CategoryPairsParameters]):
    name = "category_pairs"
    parameters = CategoryPairsParameters
    summary = (
        "attention on positions, on categories or on both: which trainings get stuck, and where (Shin & Matzinger 2025)"
    )

    head_score_names = SCORE_NAMES
    lenses: ClassVar[object] = Lenses(maps=_maps)
    level_names = ("zero", "mean", "centred_shift", "valley", "marginal", "cur", "prev", "additive", "unordered")
    verdicts = VERDICTS

    def build(self, parameters: CategoryPairsParameters) -> nn.Module:
        if parameters.is_full:
            return FullModel(parameters)
        system = PositionsOnly if parameters.variant == "positions_only" else CategoriesOnly
        softmax = parameters.attention_activation == "softmax"
        N, M = parameters.n_categories, parameters.n_positions
        full_rank = M if system is PositionsOnly else N
        qk_rank = parameters.qk_rank or full_rank if parameters.is_factored else None
        return system(N, M, softmax=softmax, qk_rank=qk_rank)

    def initial(self, module: nn.Module, lanes: Lanes[CategoryPairsParameters]) -> State:
        state = super().initial(module, lanes)
        if isinstance(module, CategoriesOnly | FullModel):
            target = lanes.streams.normal("task/target", tuple(module.target_NN.shape))
            state["target_NN"] = target.to(lanes.dtype)
        if lanes.shared.expectation == "fixed_sample":
            state["text_BM"] = _texts(lanes, "batch", lanes.shared.batch_size, step=0)
        return state

    def batch(self, lanes: Lanes[CategoryPairsParameters], step: int) -> Batch:
        if lanes.shared.expectation != "sampled":
            return {}
        return {"text": _texts(lanes, "batch", lanes.shared.batch_size, step)}

    def probe_steps(self, parameters: CategoryPairsParameters) -> tuple[int, ...]:
        return probe_steps(parameters.n_steps)  # all, whatever they cost: Shin & Matzinger's figures are curves

    def eval_batch(self, lanes: Lanes[CategoryPairsParameters]) -> Batch:
        if _has_closed_form(lanes.shared):
            return {}
        n_texts = _FULL_EVAL_TEXTS if lanes.shared.is_full else _EVAL_TEXTS
        return {"text": _texts(lanes, "eval", n_texts, step=0)}

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """The squared error: summed over predicted positions in systems P and C, their mean in full models, to which
        the flavour's loss is added. Without texts in the batch it is exact, or that of the training's own sample."""
        text_BM = batch.get("text")
        if isinstance(module, FullModel):
            error, _ = module(module.text_BM if text_BM is None else text_BM)
            total: Tensor = error + module.leaning_loss()
            return total
        system = cast(System, module)
        return system.population_loss() if text_BM is None else system.sampled_loss(text_BM)

    def evaluate(self, module: nn.Module, batch: Batch) -> Batch:
        """The loss per predicted position, exact where possible; of full models also the `answer`."""
        if isinstance(module, FullModel):
            error, answer_BK = module(batch["text"])
            return {"eval_loss": error, "answer": answer_BK}
        return {"eval_loss": self.loss(module, batch) / (cast(System, module).n_positions - 1)}

    def measure(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        if isinstance(module, FullModel):
            return full_measures(module, batch)
        return cast(System, module).coordinates()

    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Exact over all texts; of system C on the texts of `batch`, if it has any."""
        if isinstance(module, FullModel):
            return reference_levels(module.target_NN)
        if isinstance(module, CategoriesOnly):
            return module.reference_levels(batch.get("text"))
        return cast(PositionsOnly, module).reference_levels()

    def score_heads(self, lanes: Lanes[CategoryPairsParameters], state: State) -> HeadScores | None:
        return score_full_heads(lanes.shared, state) if lanes.shared.is_full else None

    def certify(
        self, lanes: Lanes[CategoryPairsParameters], state: State, outcome: NDArray[np.str_], detail: NDArray[np.str_]
    ) -> list[Certificate | None]:
        del detail
        if lanes.shared.dtype != "float64":
            return certify_by_promotion(self, lanes, state)
        if not (lanes.shared.expectation == "fixed_sample" or _has_closed_form(lanes.shared)):
            return [None] * len(outcome)
        module = self.build(lanes.shared).to(lanes.device, lanes.dtype)
        return certify(module, self.loss, lanes, state, outcome)


def _has_closed_form(parameters: CategoryPairsParameters) -> bool:
    if parameters.is_full:
        return False
    return parameters.variant == "positions_only" or parameters.attention_activation == "identity"


def _texts(lanes: Lanes[CategoryPairsParameters], stream: str, n_texts: int, step: int) -> Tensor:
    shape = (n_texts, lanes.shared.n_positions)
    return lanes.streams.integers(stream, shape, lanes.shared.n_categories, step)
