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
"""Tensors by name. A batch of all lanes has a leading lane axis; a batch of one training has none."""

Label: TypeAlias = str | tuple[str, str]
"""An outcome, or an outcome and its detail."""

P = TypeVar("P", bound=TrainingParameters)


@dataclass(frozen=True)
class Training(Generic[P]):
    """One seeded training of a workload."""

    parameters: P
    seed: int


class Lanes(Generic[P]):
    """The trainings of a pack as a workload sees them: static parameters are shared, others have a lane axis.

    Args:
        trainings: All with the same static parameters.
        device: The device of their tensors.
        built: What the module of each training was built with, parameters and buffers (L, ...) by name: for `initial`.
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
        """The parameters of the first lane. Only the static ones hold for all lanes: read no others."""
        return self.trainings[0].parameters

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type in which the state of these trainings is kept between steps."""
        return torch.float32 if self._is_mixed else self.loss_dtype

    @property
    def loss_dtype(self) -> torch.dtype:
        """The type in which the training loss and its gradient are computed."""
        return {"bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}[self.shared.dtype]

    @property
    def _is_mixed(self) -> bool:
        return self.shared.dtype == "bfloat16" and self.shared.float32_state

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """(L,) values of a numeric parameter, NaN where it is null; in the training's own type by default."""
        key = name, dtype or self.dtype
        if key not in self._tensors:
            values = [getattr(training.parameters, name) for training in self.trainings]
            numbers = [float("nan") if value is None else value for value in values]
            # Kept, because copying them to a device makes the host wait for it.
            self._tensors[key] = torch.tensor(numbers, dtype=key[1], device=self.device)
        return self._tensors[key].clone()

    def select(self, lanes: Tensor) -> "Lanes[P]":
        """The lanes at these positions, (K,) int64."""
        # Some of these share static parameters as all do. To check it again at each probe took a tenth of the time.
        chosen = copy(self)
        chosen.trainings = tuple(self.trainings[lane] for lane in lanes.tolist())
        chosen.built, chosen.streams = None, self.streams.select(lanes)
        chosen._tensors = {key: values[lanes] for key, values in self._tensors.items()}
        return chosen


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The measurements of L trainings at P probes; NaN where a training had ended or the value was not finite.

    Attributes:
        steps: (P,) int64, the steps of the probes.
        metrics: (L, P) by name: `loss`, `eval_loss`, `grad_norm`, `param_norm`, and the workload's own.
        levels: (L,) by name: the reference levels of each training.
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
        TypeError: If either is no array of text.
        ValueError: If their shapes differ.
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
                f"Verdicts: got outcome {self.outcome.shape} and detail {self.detail.shape}, expected equal shapes"
            )

    @classmethod
    def first_of(cls, cases: Mapping[Label, NDArray[np.bool_]], otherwise: Label = "plateau") -> "Verdicts":
        """At each probe the first case that holds.

        Args:
            cases: (L, P) by label, in their order of precedence.
            otherwise: The label where no case holds.
        """
        labels = [(label, "") if isinstance(label, str) else label for label in (*cases, otherwise)]
        holds = list(cases.values())
        outcome, detail = (np.select(holds, names[:-1], names[-1]) for names in zip(*labels, strict=True))
        return cls(outcome=outcome, detail=detail, possible=tuple(outcome for outcome, _ in labels))


Condition: TypeAlias = Callable[[Any, Evidence], NDArray[np.bool_]]
"""Where something holds, (L, P), by the parameters of the first lane, of which it reads static ones, and evidence."""


When: TypeAlias = Condition | str
"""A condition as a function, or as a text such as `accuracy >= 0.99`."""


def where_held(when: When, parameters: object, evidence: Evidence, subject: str = "a condition") -> NDArray[np.bool_]:
    """Where a condition holds, (L, P), whichever form it has.

    Raises:
        SpecError: For a text that is no condition, or that names what is not measured.
    """
    return holds(when, evidence.metrics, subject) if isinstance(when, str) else when(parameters, evidence)


class Judge(Protocol):
    """Labels trainings: an `attnsweep.VerdictTable`."""

    def judge(self, parameters: Any, evidence: Evidence) -> Verdicts:
        """Labels each training at each probe, as `Workload.judge`."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadScores:
    """The scores and roles of the attention heads of L trainings.

    Attributes:
        scores: (L, n_layers, n_heads) by score name; NaN where a score is not defined.
        role: (L, n_layers, n_heads) names of roles.
    """

    scores: dict[str, NDArray[np.float64]]
    role: NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Certificate:
    """The result of a test of a stuck training's label.

    Attributes:
        test: Its name, such as `kick`.
        agrees: Whether it confirms the label.
        measured: Numbers that it found, by metric name: they become the training's last points in `curves`.
    """

    test: str
    agrees: bool
    measured: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Written:
    """The texts that one ended training wrote for a set of sentences.

    Attributes:
        name: The name of the set, such as `test`.
        hypotheses: The texts it wrote, tokens separated by spaces.
        references: The correct text for each hypothesis.
    """

    name: str
    hypotheses: tuple[str, ...]
    references: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.hypotheses) != len(self.references):
            raise ValueError(f"{self.name}: {len(self.hypotheses)} hypotheses, {len(self.references)} references")


@dataclass(frozen=True, slots=True)
class Split:
    """A tensor that a compiled loss takes in parts, because few of its rows are enough work at once.

    Attributes:
        name: That of a buffer, or of a tensor of the batch.
        most_rows: The most entries along its first axis in one part.
    """

    name: str
    most_rows: int


class Workload(ABC, Generic[P]):
    """One training problem. The engine trains many of them in one program, lane by lane as if alone.

    Implementers: `build` makes a module for ONE training, and may draw from PyTorch's, NumPy's or Python's global
    generator, which are seeded for each training; all other randomness comes from `lanes.streams`; `loss`, `answers`,
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
    """Outcomes of its own, beside those of docs/outcomes.md, by label."""
    events: ClassVar[Mapping[str, When]] = {}
    """What may happen to a training, and where it holds: columns `event_<name>` of the ledger have the step of the
    first probe at which it held."""
    loss_may_be_negative: ClassVar[bool] = False
    """Whether `eval_loss` may fall below 0. A squared error or a cross-entropy may not. If it may not, and no reference
    level is negative, a training with a negative `eval_loss` has diverged."""
    head_score_names: ClassVar[tuple[str, ...]] = ()
    """Scores of attention heads: columns `score_<name>` of the ledger's `heads`; empty for a workload without heads."""
    head_layer_names: ClassVar[tuple[str, ...]] = ()
    """Display names of the ledger's layers 0, 1, ...; a layer without a name is shown by its number."""
    lenses: ClassVar[object] = None
    """The `attnsweep.Lenses` through which `heads` and `why` look at a training, where they cannot find attention or
    tokens without help. Or the name of a module that has them as `LENSES`: then a change of them is no change of the
    code that trains."""

    @abstractmethod
    def build(self, parameters: P) -> nn.Module:
        """The module of one training.

        What it holds besides parameters and buffers, such as a number in an attribute, is the same for all trainings
        with equal static parameters. Values that differ between lanes without changing shapes are buffers.
        """

    def initial(self, module: nn.Module, lanes: Lanes[P]) -> State:
        """The state in which the trainings start, (L, ...) by name: all parameters, and the buffers that are drawn.

        The default draws parameters by `init_sigma`. Override it to draw a task for each training, and take what the
        modules were built with from `lanes.built`.

        Args:
            module: The module of ONE training, as built, on the device of the lanes.
            lanes: The L trainings.
        """
        return draw_parameters(module, lanes.tensor("init_sigma", torch.float64), lanes.streams, lanes.built)

    def batch(self, lanes: Lanes[P], step: int) -> Batch:
        """The data of one step, (L, ...) by name. Empty where the loss is exact."""
        del lanes, step
        return {}

    def batches(self, lanes: Lanes[P], steps: range) -> list[Batch]:
        """The data of the first one or more of these steps. Override it to draw several steps at once."""
        return [self.batch(lanes, steps[0])]

    def probe_steps(self, parameters: P) -> tuple[int, ...]:
        """The steps of the probes, rising from 0 to `n_steps`. Read only static parameters."""
        return probe_steps(parameters.n_steps)

    def eval_batch(self, lanes: Lanes[P]) -> Batch:
        """Held-out data, the same at every probe, (L, ...) by name. Empty where `eval_loss` is exact."""
        del lanes
        return {}

    def fresh_eval_batch(self, lanes: Lanes[P], step: int) -> Batch:
        """What replaces parts of `eval_batch` at the probe at this step, (L, ...) by name; by default nothing.

        The reference levels do not see it. Take it from `lanes.streams` at this step, so that it does not depend on
        the other probes.
        """
        del lanes, step
        return {}

    def split(self, parameters: P) -> Split | None:
        """What a compiled loss may take in parts: the loss on all rows must be the mean of the losses on equal parts.

        By default nothing. Read only static parameters.
        """
        del parameters
        return None

    @abstractmethod
    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """The loss that one training minimizes, a scalar."""

    def eval_loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """The loss that one training is judged by, a scalar in the units of the reference levels.

        Args:
            module: With the current parameters.
            batch: The evaluation batch and its `answers`.
        """
        return self.loss(module, batch)

    def answers(self, module: nn.Module, batch: Batch) -> Batch:
        """What both `eval_loss` and `measure` are computed from, such as the module's answers on the evaluation batch;
        by default nothing. It is computed once a probe and added to the batch that the two get.

        Args:
            module: With the current parameters.
            batch: The evaluation batch.
        """
        del module, batch
        return {}

    def measure(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Further scalars of one training, by metric name; no gradients are taken of them.

        Args:
            module: With the current parameters.
            batch: The evaluation batch and its `answers`; and, if the optimizer already knows them, the scalars
                `train_loss` and `train_grad_norm` of the training loss.
        """
        del module, batch
        return {}

    @abstractmethod
    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The reference levels of one training: scalars by name among `level_names`, and always `solved`, the loss
        below which the training is solved.

        Args:
            module: With the starting parameters.
            batch: The evaluation batch. If `eval_loss` is estimated on it, estimate the levels on it too: against the
                exact level of the data's distribution, the loss would be off by the batch's sampling noise.
        """

    def verdicts(self, parameters: P) -> Judge | None:
        """The table by which trainings with these static parameters are judged; `None` where `judge` needs none."""
        del parameters
        return None

    def judge(self, parameters: P, evidence: Evidence) -> Verdicts:
        """Labels each training at each probe. Define it, or `verdicts`.

        Args:
            parameters: Those of the first lane; read only static ones.
            evidence: The measurements of L trainings at P probes.
        """
        table = self.verdicts(parameters)
        assert table is not None
        return table.judge(parameters, evidence)

    def identities(self, parameters: P) -> Sequence[Identity]:
        """What the gradients of a training satisfy exactly; by default nothing. See `attnsweep check-gradients`.

        Args:
            parameters: Those of the training. Identities that hold for all values of a parameter need not read it.
        """
        del parameters
        return ()

    def score_heads(self, lanes: Lanes[P], state: State) -> HeadScores | None:
        """Scores and roles of the attention heads at a probe, for all lanes at once; `None` where there are none.

        Args:
            lanes: The L trainings.
            state: Their parameters and buffers, (L, ...) by name.
        """
        del lanes, state
        return None

    def certify(
        self, lanes: Lanes[P], state: State, outcome: NDArray[np.str_], detail: NDArray[np.str_]
    ) -> list[Certificate | None]:
        """Tests the labels of L stuck trainings; `None` for a label without a test.

        Args:
            lanes: The L trainings.
            state: Their parameters and buffers where they ended, (L, ...) by name.
            outcome, detail: Their labels, (L,).
        """
        del state, outcome, detail
        return [None] * len(lanes.trainings)

    def hugging_face(self, parameters: P, module: nn.Module) -> nn.Module:
        """A trained module as a `transformers.PreTrainedModel` with the same logits, for `attnsweep export`; by default
        the module itself.

        Raises:
            UserError: For a parameter that has no counterpart there.
        """
        del parameters
        return module

    def write(self, lanes: Lanes[P], state: State) -> list[tuple[Written, ...]]:
        """The texts that L ended trainings write, for BLEU; by default none. All trainings have the same set names.

        Args:
            lanes: The L trainings, none of which diverged.
            state: Their parameters and buffers where they ended, (L, ...) by name.
        """
        del state
        return [()] * len(lanes.trainings)
