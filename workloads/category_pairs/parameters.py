"""The parameters of a category-pairs training, and their allowed combinations."""

from dataclasses import dataclass
from typing import ClassVar

from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import TrainingParameters, parameter

REDUCED_VARIANTS = ("positions_only", "categories_only")
"""Systems P and C: attention alone, without LayerNorm and feed-forward part."""
FULL_VARIANTS = ("solution_1", "solution_2", "solution_3", "combined")

_FULL_ONLY = ("skip", "layer_norm_eps", "attention_scale", "hidden_width")
_COMBINED_ONLY = ("flavour", "flavour_weight")


@dataclass(frozen=True, kw_only=True)
class CategoryPairsParameters(TrainingParameters):
    variant: str = parameter(
        "positions_only",
        "what attention may see, and whether LayerNorm and a feed-forward part follow it",
        choices=REDUCED_VARIANTS + FULL_VARIANTS,
        static=True,
    )
    n_categories: int = parameter(10, "categories N", low=2, high=1000, static=True)
    n_positions: int = parameter(20, "text length M, tokens", low=2, high=10_000, static=True)
    attention_activation: str = parameter(
        "identity", "function of each column of the attention logits", choices=("identity", "softmax"), static=True
    )
    expectation: str = parameter(
        "population",
        "the training loss: exact over all texts, over a fresh sample each step, or over one sample drawn at the start",
        choices=("population", "sampled", "fixed_sample"),
        static=True,
    )
    batch_size: int = parameter(256, "texts per sample", low=1, high=1_000_000, static=True)
    skip: bool = parameter(True, "full models: add the input before the LayerNorm", static=True)
    layer_norm_eps: float = parameter(1e-5, "full models: added to the variance, inside the root", low=0.0)
    attention_scale: str = parameter(
        "one",
        "full models: factor of the logits; d = size of a key's input, n = n_positions; learned starts at inv_sqrt_d",
        choices=("one", "inv_sqrt_d", "log_n_inv_sqrt_d", "learned"),
    )
    hidden_width: int | None = parameter(
        None,
        "full models: feed-forward width; null = N^2, M, N, or N + M by variant",
        low=1,
        high=1_000_000,
        static=True,
    )
    flavour: str = parameter(
        "unconstrained",
        "combined: the solution towards which an added loss pulls the model",
        choices=("unconstrained", "lean_1", "lean_2", "lean_3"),
    )
    flavour_weight: float = parameter(0.1, "combined: weight of the loss that a flavour adds", low=0.0)

    qk: str | None = parameter(
        None,
        "train k and q (factored), or k^t q as one matrix; null = merged in reduced systems, factored in full models",
        choices=("factored", "merged"),
        static=True,
    )
    qk_rank: int | None = parameter(
        None, "factored: rows of k and q; null = the number of columns of k", low=1, high=10_000, static=True
    )

    variant_field: ClassVar[str | None] = "variant"

    @property
    def is_full(self) -> bool:
        return self.variant in FULL_VARIANTS

    @property
    def is_factored(self) -> bool:
        return (self.qk or ("factored" if self.is_full else "merged")) == "factored"

    def __post_init__(self) -> None:
        self._refuse_losses_without_meaning()
        if not self.is_full:
            self._refuse_unless_default(_FULL_ONLY, "full models (solution_1, solution_2, solution_3, combined)")
        if self.variant != "combined":
            self._refuse_unless_default(_COMBINED_ONLY, "variant=combined")
        self._refuse_useless_ranks()

    def _refuse_losses_without_meaning(self) -> None:
        if self.is_full and self.expectation == "population":
            expected = f"fixed_sample or sampled, because variant={self.variant} has no closed-form loss"
            raise self.refused("expectation", expected, "set expectation=fixed_sample, as in the paper")
        if self.is_full and self.expectation == "sampled" and self.optimizer == "lbfgs":
            expected = "fixed_sample, because lbfgs needs the same sample throughout a line search"
            raise self.refused("expectation", expected, "set expectation=fixed_sample, or optimizer=adam")
        if not self.is_full and self.expectation == "fixed_sample":
            expected = f"population or sampled: variant={self.variant} is no full model, which can have a fixed sample"
            fix = "set expectation=population, or set variant to a full model, such as solution_1"
            raise self.refused("expectation", expected, fix)
        no_closed_form = self.variant == "categories_only" and self.attention_activation == "softmax"
        if no_closed_form and self.expectation == "population":
            expected = "sampled, because a softmax over categories has no closed-form loss"
            raise self.refused("expectation", expected, "set expectation=sampled, or attention_activation=identity")

    def _refuse_useless_ranks(self) -> None:
        if self.qk_rank is None:
            return
        if not self.is_factored:
            expected = "null, because the product of k^t and q is trained as one matrix, whose rank is not limited"
            raise self.refused("qk_rank", expected, "set qk=factored, or remove qk_rank")
        needed = self.n_positions - 1
        needs_shift = self.variant == "positions_only" and self.attention_activation == "identity"
        if needs_shift and self.qk_rank < needed:
            expected = f"at least n_positions - 1, {needed}, the rank of the shift by one position that solves the task"
            raise self.refused("qk_rank", expected, f"set qk_rank={needed} or more, or lower n_positions")

    def _refuse_unless_default(self, names: tuple[str, ...], owner: str) -> None:
        for name in names:
            default = self.declared()[name].default
            if getattr(self, name) != default:
                expected = f"the default {default!r} under variant={self.variant}, because it belongs to {owner}"
                raise SpecError(name, given=getattr(self, name), expected=expected, fix="remove it, or change variant")
