"""The contract between the engine and a training problem. Axes: L lane, P probe."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnsweep.workloads.conditions import holds
from attnsweep.workloads.engine.initialization import draw_parameters
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.schedule import probe_steps
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.identities.identity import Identity
from attnsweep.workloads.parameters import TrainingParameters
from attnsweep.workloads.vocabulary import Outcome

Batch = dict[str, Tensor]
"""Tensors by name. The tensors of a batch of all lanes have a leading lane axis; those of one training have none."""

Label: TypeAlias = str | tuple[str, str]
"""An outcome, or an outcome and its detail."""

P = TypeVar("P", bound=TrainingParameters)


@dataclass(frozen=True)
class Training(Generic[P]):
    """One training of a workload: parameters and a seed."""

    parameters: P
    seed: int


class Lanes(Generic[P]):
    """The trainings of a pack as a workload sees them. They share static parameters; others have a lane axis.

    Args:
        trainings: The trainings, all with the same static parameters.
        built: The parameters and buffers (L, ...) by name that `build` gave the modules, for use in `initial`.
    """

    def __init__(
        self, trainings: Sequence[Training[P]], device: torch.device, built: Mapping[str, Tensor] | None = None
    ) -> None:
        assert len({training.parameters.static_key() for training in trainings}) == 1
        self.trainings = tuple(trainings)
        self.device = device
        self.built = built
        self.streams = Streams(torch.tensor([training.seed for training in trainings], device=device))
        self._tensors: dict[tuple[str, torch.dtype], Tensor] = {}

    @property
    def shared(self) -> P:
        """The parameters of the first lane. Only static ones hold for all lanes."""
        return self.trainings[0].parameters

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type in which parameters and optimizer state are kept between steps."""
        return torch.float32 if self.is_rounded and self.shared.float32_state else self.loss_dtype

    @property
    def loss_dtype(self) -> torch.dtype:
        """The floating-point type in which the training loss and its gradient are computed."""
        return {"bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}[self.shared.dtype]

    @property
    def is_rounded(self) -> bool:
        """Whether the training loss is computed in bfloat16."""
        return self.loss_dtype == torch.bfloat16

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """Returns the values (L,) of a numeric parameter, NaN where it is null; by default in `self.dtype`."""
        key = name, dtype or self.dtype
        if key not in self._tensors:
            values = [getattr(training.parameters, name) for training in self.trainings]
            numbers = [float("nan") if value is None else value for value in values]
            # `_tensors` is a cache, because every copy to the device makes the host wait for the device.
            self._tensors[key] = torch.tensor(numbers, dtype=key[1], device=self.device)
        return self._tensors[key].clone()

    def select(self, lanes: Tensor) -> "Lanes[P]":
        """Selects the lanes at the positions `lanes`, (K,) int64."""
        # `copy` does not call the constructor, whose check of the static parameters took a tenth of the time of a
        # probe.
        selected = copy(self)
        selected.trainings = tuple(self.trainings[lane] for lane in lanes.tolist())
        selected.built, selected.streams = None, self.streams.select(lanes)
        selected._tensors = {key: values[lanes] for key, values in self._tensors.items()}
        return selected


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The measurements of L trainings at P probes; NaN where a training had ended or the value was not finite.

    Attributes:
        steps: (P,) int64, the steps of the probes.
        metrics: Arrays (L, P) by name: `loss`, `eval_loss`, `grad_norm`, `param_norm`, and the workload's own metrics.
        levels: Arrays (L,) by name: the reference levels of the trainings.
    """

    steps: NDArray[np.int64]
    metrics: dict[str, NDArray[np.float64]]
    levels: dict[str, NDArray[np.float64]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdicts:
    """The labels that L trainings would have if they had ended at each of P probes.

    Attributes:
        outcome: (L, P) names of outcomes.
        detail: (L, P) the reference function or valley, empty where there is none.
        possible: All outcomes that could have been given, whether or not they were; empty where that is not known.

    Raises:
        TypeError: If `outcome` or `detail` is not an array of text.
        ValueError: If the shapes of the two differ.
    """

    outcome: NDArray[np.str_]
    detail: NDArray[np.str_]
    possible: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, labels in (("outcome", self.outcome), ("detail", self.detail)):
            if not isinstance(labels, np.ndarray) or labels.dtype.kind != "U":
                kind = f"array of {labels.dtype}" if isinstance(labels, np.ndarray) else type(labels).__name__
                raise TypeError(f"Verdicts.{name}: got {kind}, expected a NumPy array of str")
        if self.outcome.shape != self.detail.shape:
            raise ValueError(
                f"Verdicts: got `outcome` of the shape {self.outcome.shape} and `detail` of the shape"
                f" {self.detail.shape}, expected equal shapes"
            )

    @classmethod
    def first_of(cls, cases: Mapping[Label, NDArray[np.bool_]], otherwise: Label = "plateau") -> "Verdicts":
        """Labels every probe with the first label whose case holds there.

        Args:
            cases: For every label, the probes (L, P) at which it holds; in order of precedence.
        """
        labels = [(label, "") if isinstance(label, str) else label for label in (*cases, otherwise)]
        holds = list(cases.values())
        outcome, detail = (np.select(holds, names[:-1], names[-1]) for names in zip(*labels, strict=True))
        return cls(outcome=outcome, detail=detail, possible=tuple(outcome for outcome, _ in labels))


Condition: TypeAlias = Callable[[Any, Evidence], NDArray[np.bool_]]
"""A function of the first lane's parameters (static ones only) and the evidence: at which probes, (L, P), it holds."""


When: TypeAlias = Condition | str
"""A condition as a function, or as a text such as `accuracy >= 0.99`."""


def where_held(when: When, parameters: object, evidence: Evidence, subject: str = "a condition") -> NDArray[np.bool_]:
    """Evaluates a condition, given as text or function, at every probe. Returns (L, P) bool.

    Raises:
        SpecError: If a text is not a condition, or names a metric that is not measured.
    """
    return holds(when, evidence.metrics, subject) if isinstance(when, str) else when(parameters, evidence)


class Judge(Protocol):
    """An object that labels trainings, such as `attnsweep.VerdictTable`."""

    def judge(self, parameters: Any, evidence: Evidence) -> Verdicts:
        """Labels all trainings at all probes, with the arguments of `Workload.judge`."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadScores:
    """The scores and roles of the attention heads of L trainings.

    Attributes:
        scores: Arrays (L, n_layers, n_heads) by score name; NaN where a score is not defined.
        role: (L, n_layers, n_heads) names of roles.
    """

    scores: dict[str, NDArray[np.float64]]
    role: NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Certificate:
    """The result of a test of the label of a stuck training.

    Attributes:
        test: The name of the test, such as `kick`.
        agrees: Whether the test confirms the label.
        measured: The test's measurements by metric name: they become the training's last points in `curves`.
    """

    test: str
    agrees: bool
    measured: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Written:
    """The texts that one ended training wrote for one set of test sentences.

    Attributes:
        name: The name of the set, such as `test`.
        hypotheses: The texts that the training wrote, tokens separated by spaces.
        references: The correct texts, in the order of the hypotheses.
    """

    name: str
    hypotheses: tuple[str, ...]
    references: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.hypotheses) != len(self.references):
            raise ValueError(
                f"Written {self.name}: got {len(self.hypotheses)} hypotheses and {len(self.references)} references, "
                "expected one reference per hypothesis"
            )


@dataclass(frozen=True, slots=True)
class Split:
    """Names a tensor that a compiled loss processes in parts along its first axis, which saves memory.

    Attributes:
        name: The name of a buffer, or of a tensor of the batch.
        most_rows: The largest number of rows in one part: few rows are enough work for the device.
    """

    name: str
    most_rows: int


class Workload(ABC, Generic[P]):
    """One training problem. The engine runs many trainings in one program, each as if alone.

    Implementers: `build` makes a module for ONE training, and may draw from PyTorch's, NumPy's or Python's global
    generator, which are seeded for every training; all other randomness comes from `lanes.streams`; `loss`, `answers`,
    `eval_loss`, `measure` and `levels` see one training and are vectorized over lanes by the engine (`torch.vmap`), so
    they branch on static parameters only; every parameter that changes a shape or the graph is declared static.
    `attnsweep.workloads.testing` checks these duties.
    """

    name: ClassVar[str]
    parameters: type[P]
    """The class that declares the parameters."""
    summary: ClassVar[str]
    """One line for `attnsweep workloads`."""
    level_names: ClassVar[tuple[str, ...]]
    """The reference levels of all variants, without `solved`: columns `level_<name>` of the ledger."""
    outcomes: ClassVar[Mapping[str, Outcome]] = {}
    """The workload's own outcomes, beside those of docs/outcomes.md, by label."""
    events: ClassVar[Mapping[str, When]] = {}
    """Conditions by name. The ledger's columns `event_<name>` have the step of the first probe at which one held."""
    loss_may_be_negative: ClassVar[bool] = False
    """Whether `eval_loss` may fall below 0; a squared error or a cross-entropy never does. If it may not, and no
    reference level is negative, a training with a negative `eval_loss` has diverged."""
    head_score_names: ClassVar[tuple[str, ...]] = ()
    """Names of the scores of attention heads: columns `score_<name>` of the ledger's `heads`; empty without heads."""
    head_layer_names: ClassVar[tuple[str, ...]] = ()
    """Display names of the ledger's layers 0, 1, ...; a layer without a name is shown by its number."""
    lenses: ClassVar[object] = None
    """The `attnsweep.Lenses` by which `heads` and `why` read a trained model, where they cannot find attention or
    tokens without help. Or the name of a module with a constant `LENSES`: changing that module does not count as a
    change of the code that trains."""

    @abstractmethod
    def build(self, parameters: P) -> nn.Module:
        """Builds the module of one training.

        Everything in it besides parameters and buffers, such as a number in an attribute, must be the same for all
        trainings with equal static parameters. Values that differ between lanes must be buffers.
        """

    def initial(self, module: nn.Module, lanes: Lanes[P]) -> State:
        """Returns the initial state (L, ...) by name: all parameters, and those buffers that are drawn at random.

        The default draws parameters by `init_sigma`. Override it to draw a task for every training; `lanes.built` has
        the values that `build` gave the modules.

        Args:
            module: The module of ONE training, as built, on the device of the lanes.
        """
        return draw_parameters(module, lanes.tensor("init_sigma", torch.float64), lanes.streams, lanes.built)

    def batch(self, lanes: Lanes[P], step: int) -> Batch:
        """Draws the data of one step, (L, ...) by name; empty for losses that are exact and need no data."""
        del lanes, step
        return {}

    def batches(self, lanes: Lanes[P], steps: range) -> list[Batch]:
        """Draws the data of the first one or more of the given steps. Override it to draw several steps at once."""
        return [self.batch(lanes, steps[0])]

    def probe_steps(self, parameters: P) -> tuple[int, ...]:
        """Returns the steps of the probes, in increasing order from 0 to `n_steps`. May read only static parameters."""
        return probe_steps(parameters.n_steps)

    def eval_batch(self, lanes: Lanes[P]) -> Batch:
        """Draws the held-out data (L, ...) by name that all probes use; empty if `eval_loss` is exact."""
        del lanes
        return {}

    def fresh_eval_batch(self, lanes: Lanes[P], step: int) -> Batch:
        """Draws tensors (L, ...) that replace entries of `eval_batch` at the probe of this step; by default none.

        Reference levels are computed without them. Draw from `lanes.streams` at this step, so that the data do not
        depend on other probes.
        """
        del lanes, step
        return {}

    def split(self, parameters: P) -> Split | None:
        """Names the tensor that a compiled loss may process in parts; by default none. May read only static parameters.

        The loss on all rows must be the mean of the losses on equal parts.
        """
        del parameters
        return None

    @abstractmethod
    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """Computes the loss that one training minimizes, a scalar."""

    def eval_loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """Computes the loss by which one training is judged, a scalar in the units of the reference levels.

        Args:
            batch: The evaluation batch, with the entries of `answers` added.
        """
        return self.loss(module, batch)

    def answers(self, module: nn.Module, batch: Batch) -> Batch:
        """Computes once per probe what `eval_loss` and `measure` share, such as the module's outputs.

        The entries are added to the batch that these two methods get.
        """
        del module, batch
        return {}

    def measure(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Computes further metrics of one training, scalars by name, without gradients.

        Args:
            batch: The evaluation batch, with the entries of `answers` added; and, if the optimizer already knows them,
                the scalars `train_loss` and `train_grad_norm` of the training loss.
        """
        del module, batch
        return {}

    @abstractmethod
    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Computes the reference levels of one training, scalars by name: `solved`, and any others of `level_names`.

        A training is solved once its `eval_loss` is below the level `solved`.

        Args:
            module: The module with its initial parameters.
            batch: The evaluation batch. If `eval_loss` is estimated on it, estimate the levels on it too: against the
                exact level of the data's distribution, the loss would be off by the batch's sampling noise.
        """

    def verdicts(self, parameters: P) -> Judge | None:
        """Returns the table that labels trainings with these static parameters; `None` if `judge` labels them."""
        del parameters
        return None

    def judge(self, parameters: P, evidence: Evidence) -> Verdicts:
        """Labels all trainings at all probes. A workload must define this method or `verdicts`.

        Args:
            parameters: The parameters of the first lane; read only static ones.
        """
        table = self.verdicts(parameters)
        assert table is not None
        return table.judge(parameters, evidence)

    def identities(self, parameters: P) -> Sequence[Identity]:
        """Declares identities that the gradients of a training satisfy exactly; by default none.

        `attnsweep check-gradients` checks them.

        Args:
            parameters: The training's parameters. Identities that hold for all values of a parameter need not read it.
        """
        del parameters
        return ()

    def score_heads(self, lanes: Lanes[P], state: State) -> HeadScores | None:
        """Scores the attention heads of all lanes at a probe, given their state (L, ...); `None` without heads."""
        del lanes, state
        return None

    def certify(
        self, lanes: Lanes[P], state: State, outcome: NDArray[np.str_], detail: NDArray[np.str_]
    ) -> list[Certificate | None]:
        """Tests the labels of L stuck trainings. Returns a certificate for each; `None` for a label without a test.

        Args:
            lanes: The L trainings.
            state: The final parameters and buffers (L, ...) by name.
            outcome, detail: The labels (L,) to test.
        """
        del state, outcome, detail
        return [None] * len(lanes.trainings)

    def hugging_face(self, parameters: P, module: nn.Module) -> nn.Module:
        """Converts a trained module to a `transformers.PreTrainedModel` with the same logits, for `attnsweep export`.

        The default returns the module itself.

        Raises:
            UserError: If a parameter has no counterpart in the `transformers` model.
        """
        del parameters
        return module

    def write(self, lanes: Lanes[P], state: State) -> list[tuple[Written, ...]]:
        """Lets L ended trainings write texts, such as translations, which are scored by BLEU; by default none.

        All trainings must have the same names of sets.
        """
        del state
        return [()] * len(lanes.trainings)
