"""What may vary in a category-pairs training."""

from dataclasses import dataclass
from typing import ClassVar

from workloads.errors import SpecError
from workloads.parameters import TrainingParameters, parameter


@dataclass(frozen=True, kw_only=True)
class CategoryPairsParameters(TrainingParameters):
    """Parameters of the reduced systems P (`positions_only`) and C (`categories_only`).

    Raises:
        SpecError: For `categories_only` with softmax under `population`: that loss has no closed form.
    """

    variant: str = parameter(
        "positions_only",
        "what attention may see",
        choices=("positions_only", "categories_only"),
        static=True,
    )
    n_categories: int = parameter(10, "categories N", low=2, high=1000, static=True)
    n_positions: int = parameter(20, "text length M, tokens", low=2, high=10_000, static=True)
    attention_activation: str = parameter(
        "identity",
        "applied to the columns of the attention logits",
        choices=("identity", "softmax"),
        static=True,
    )
    expectation: str = parameter(
        "population",
        "the loss descended: exact over the law of texts, or a fresh sample each step",
        choices=("population", "sampled"),
        static=True,
    )
    batch_size: int = parameter(256, "texts per step when sampled", low=1, high=1_000_000, static=True)

    variant_field: ClassVar[str | None] = "variant"

    def __post_init__(self) -> None:
        no_closed_form = self.variant == "categories_only" and self.attention_activation == "softmax"
        if no_closed_form and self.expectation == "population":
            raise SpecError(
                "expectation",
                given=self.expectation,
                expected="sampled (softmax over categories has no closed-form loss)",
                mend="set expectation=sampled, or attention_activation=identity",
            )
