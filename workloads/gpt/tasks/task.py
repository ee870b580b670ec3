"""What a GPT is to predict, and the laws that its loss is compared with.

Axes: L lane, B sequence, T token, V word.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.errors import SpecError

Laws = dict[str, Tensor]
"""What defines the distributions of L trainings: tensors (L, ...) by name."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """Sequences of tokens with what is to be predicted at each.

    Attributes:
        token_LBT, target_LBT: int64, below V.
        counts_LBT: bool, whether the prediction at this token counts in the loss.
    """

    token_LBT: Tensor
    target_LBT: Tensor
    counts_LBT: Tensor


_MOST_WORDS = 64
"""Of languages that are drawn."""
LEAST_WORDS = 4
"""Of languages whose targets depend on two tokens. With 2 words, the targets of one table in four depend on the current
token alone, with 3 of one in 729, with 4 of one in 17 million: then there is nothing to solve."""


class Task(ABC):
    """A distribution of sequences for each training, drawn from the training's own streams."""

    name: ClassVar[str]
    summary: ClassVar[str]
    reference_names: ClassVar[tuple[str, ...]] = ("constant", "current")
    """The reference predictors that are no solution, from the worst to the best."""

    def check(self, n_words: int, n_tokens: int, corpus: str | None) -> None:
        """Checks that the sizes fit the task, and that a corpus is given only where one is read.

        Raises:
            SpecError: If not.
        """
        del n_tokens
        if corpus is not None:
            raise SpecError(
                "corpus", given=corpus, expected=f"null with task={self.name}", fix="remove it, or choose task=text"
            )
        if n_words > _MOST_WORDS:
            raise SpecError(
                "n_words", given=n_words, expected=f"at most {_MOST_WORDS} with task={self.name}", fix="lower n_words"
            )

    def least_contrast(self, n_judged: int) -> float:
        """The smallest `chain_contrast` that this task can be judged at.

        Args:
            n_judged: The number of tokens that a training is judged by.
        """
        del n_judged
        return 0.0

    def laws(self, streams: Streams, n_words: int, contrast_L: Tensor, corpus: str | None) -> Laws:
        """The distributions; none if those of all trainings are the same.

        Args:
            streams: Those of the L trainings.
            n_words: V.
            contrast_L: The parameter `chain_contrast`, float64.
            corpus: The file of a prepared text, where the task reads one.
        """
        del streams, n_words, contrast_L, corpus
        return {}

    @abstractmethod
    def sequences(
        self, streams: Streams, name: str, laws: Laws, n_words: int, shape: tuple[int, int], step: int
    ) -> Sequences:
        """Random sequences.

        Args:
            streams: Those of the L trainings.
            name: The name of the stream.
            laws: From `laws`.
            n_words: V.
            shape: B and T.
            step: The step.
        """

    @abstractmethod
    def reference_nats(self, laws: Laws, n_words: int, drawn: Sequences) -> dict[str, Tensor]:
        """-log p of the targets, (L, B, T) float64, under predictors by name; only those that count have a meaning.

        They are `constant`, the best prediction that does not depend on the input; `current`, the best that depends on
        the current token alone; `optimum`, the best of all, NaN if nobody knows it; and further ones among
        `reference_names`.
        """

    def needs_previous(self, drawn: Sequences) -> Tensor:
        """(L, B, T) bool, the tokens whose predecessor matters: where a previous-token head is scored."""
        return drawn.counts_LBT


def check_at_least_four(task: str, n_words: int) -> None:
    """Checks that the targets of a drawn language depend on two tokens.

    Raises:
        SpecError: If there are fewer than `LEAST_WORDS` words.
    """
    if n_words < LEAST_WORDS:
        raise SpecError(
            "n_words",
            given=n_words,
            expected=f"at least {LEAST_WORDS} with task={task}: with fewer, some drawn languages have nothing to solve",
            fix="raise n_words",
        )


def nats(law_LN: Tensor, index_LBT: Tensor) -> Tensor:
    """(L, B, T) -log p of indices below N."""
    log_p = law_LN.log().gather(1, index_LBT.flatten(1))
    return -log_p.view(index_LBT.shape)
