"""The interface of a GPT's task: the sequences, their distributions ("laws"), and the losses of reference predictors.

Axes: L lane, B sequence, T token, V word.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.errors import SpecError

Laws = dict[str, Tensor]
"""The tensors that define the distributions of the sequences of L trainings: (L, ...) by name."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """Sequences of tokens, with the target that is to be predicted at each token.

    Attributes:
        token_LBT, target_LBT: int64, below V.
        counts_LBT: bool, whether the prediction at each token counts in the loss.
    """

    token_LBT: Tensor
    target_LBT: Tensor
    counts_LBT: Tensor


_MOST_WORDS = 64
"""The largest vocabulary of a task whose distributions are drawn."""
LEAST_WORDS = 4
"""The smallest vocabulary of a task whose targets depend on two tokens. A drawn table whose targets depend on the
current token alone leaves nothing to solve. With 2 words this is one table in four, with 3 one in 729, with 4 one in 17
million."""


class Task(ABC):
    """A distribution of token sequences for each training, drawn from the training's own random streams."""

    name: ClassVar[str]
    summary: ClassVar[str]
    reference_names: ClassVar[tuple[str, ...]] = ("constant", "current")
    """The reference predictors that do not solve the task, from the worst to the best."""

    def check(self, n_words: int, n_tokens: int, corpus: str | None) -> None:
        """Raises if the sizes do not fit the task, or if a corpus is given to a task that reads none.

        Raises:
            SpecError: If a size does not fit, or a corpus is missing or not read.
        """
        del n_tokens
        if corpus is not None:
            raise SpecError(
                "corpus",
                given=corpus,
                expected=f"corpus=null with task={self.name}",
                fix="remove corpus, or set task=text",
            )
        if n_words > _MOST_WORDS:
            raise SpecError(
                "n_words",
                given=n_words,
                expected=f"at most {_MOST_WORDS} words with task={self.name}",
                fix="lower n_words",
            )

    def least_contrast(self, n_judged: int) -> float:
        """Returns the smallest `chain_contrast` with which the loss can tell solved trainings from others.

        Args:
            n_judged: The number of tokens on which the loss is evaluated.
        """
        del n_judged
        return 0.0

    def laws(self, streams: Streams, n_words: int, contrast_L: Tensor, corpus: str | None) -> Laws:
        """Draws what the sequence distributions of L trainings differ in, tensors by name; empty if all are alike.

        Args:
            streams: The random streams of the L trainings.
            n_words: V.
            contrast_L: The parameter `chain_contrast`, float64.
            corpus: The file of a prepared text, if the task reads one.
        """
        del streams, n_words, contrast_L, corpus
        return {}

    @abstractmethod
    def sequences(
        self, streams: Streams, name: str, laws: Laws, n_words: int, shape: tuple[int, int], step: int
    ) -> Sequences:
        """Draws the sequences of a training step, or held-out ones.

        Args:
            streams: The random streams of the L trainings.
            name: The name of the stream: `batch` for training data, another name for held-out data.
            laws: The distributions that `laws` returned.
            n_words: V.
            shape: B and T.
            step: The optimizer step.
        """

    @abstractmethod
    def reference_nats(self, laws: Laws, n_words: int, drawn: Sequences) -> dict[str, Tensor]:
        """Returns -log p of the targets under each reference predictor, (L, B, T) float64 by name.

        Values at tokens that do not count have no meaning. The predictors are `constant`, the best that does not depend
        on the input; `current`, the best that depends on the current token alone; `optimum`, the best of all, NaN if it
        is not known; and the others in `reference_names`.
        """

    def needs_previous(self, drawn: Sequences) -> Tensor:
        """Returns the tokens at which the task needs a previous-token head, and scores it there, (L, B, T) bool."""
        return drawn.counts_LBT


def check_at_least_four(task: str, n_words: int) -> None:
    """Raises if the vocabulary is too small (`LEAST_WORDS`) for drawn targets to depend on two tokens.

    Raises:
        SpecError: If there are fewer than `LEAST_WORDS` words.
    """
    if n_words < LEAST_WORDS:
        raise SpecError(
            "n_words",
            given=n_words,
            expected=f"at least {LEAST_WORDS} words with task={task}, because with fewer words some drawn tasks are"
            " trivial",
            fix="raise n_words",
        )


def nats(law_LN: Tensor, index_LBT: Tensor) -> Tensor:
    """Looks up -log p, (L, B, T), for indices (L, B, T) into the probabilities (L, N)."""
    log_p = law_LN.log().gather(1, index_LBT.flatten(1))
    return -log_p.view(index_LBT.shape)
