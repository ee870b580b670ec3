"""The interface between the engine and a workload."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnsweep.workloads.engine.initialization import draw_parameters
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.engine.verdicts import Verdicting, When
from attnsweep.workloads.parameters import TrainingParameters
from attnsweep.workloads.vocabulary import Outcome

Batch = dict[str, Tensor]
"""Tensors by name; in a batch of several trainings each has the training as first axis."""

STEPS_AT_ONCE, BYTES_AT_ONCE = 64, 2**23
"""How many steps' data are drawn together: at most so many, and fewer if they take more bytes."""

P = TypeVar("P", bound=TrainingParameters)


@dataclass(frozen=True)
class Training(Generic[P]):
    parameters: P
    seed: int


class Lanes(Generic[P]):
    """A pack's trainings as a workload sees them. Their static parameters are equal.

    Args:
        built: What `build` gave the modules, (n_trainings, ...) by name; `None` outside `initial`.
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
        """The first training's parameters, where static ones are read."""
        return self.trainings[0].parameters

    @property
    def dtype(self) -> torch.dtype:
        """That of parameters between two steps."""
        return torch.float32 if self.is_rounded and self.shared.float32_state else self.loss_dtype

    @property
    def loss_dtype(self) -> torch.dtype:
        """That of the training loss and its gradient."""
        return {"bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}[self.shared.dtype]

    @property
    def is_rounded(self) -> bool:
        """Whether the training loss has bfloat16's three significant digits."""
        return self.loss_dtype == torch.bfloat16

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """A numeric parameter, (n_trainings,), NaN where null; in `self.dtype` by default."""
        key = name, dtype or self.dtype
        if key not in self._tensors:
            values = [getattr(training.parameters, name) for training in self.trainings]
            numbers = [float("nan") if value is None else value for value in values]
            # Kept, so that it is copied once: the host waits for the device at every copy.
            self._tensors[key] = torch.tensor(numbers, dtype=key[1], device=self.device)
        return self._tensors[key].clone()

    def select(self, lanes: Tensor) -> "Lanes[P]":
        # The constructor would check static parameters again, which took a tenth of a probe.
        selected = copy(self)
        selected.trainings = tuple(self.trainings[lane] for lane in lanes.tolist())
        selected.built, selected.streams = None, self.streams.select(lanes)
        selected._tensors = {key: values[lanes] for key, values in self._tensors.items()}
        return selected


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadScores:
    """All attention heads at one probe, (n_trainings, n_layers, n_heads): scores by name, NaN where not defined, and
    roles, such as `previous_token`."""

    scores: dict[str, NDArray[np.float64]]
    role: NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Certificate:
    """Whether a test `agrees` with a stuck training's label; what it `measured` ends the training's curves."""

    test: str
    agrees: bool
    measured: Mapping[str, float] = field(default_factory=dict)


class Workload(ABC, Generic[P]):
    """A training problem: model, data and losses. The engine runs many trainings in one program, each as if alone.

    Implementers: `build` makes a module for ONE training, and may draw from PyTorch's, NumPy's or Python's global
    generator, which are seeded for every training; all other randomness comes from `lanes.streams`; `loss`,
    `evaluate`, `measure` and `levels` see one training and the engine vectorizes them over trainings (`torch.vmap`),
    so they branch on static parameters only; every parameter that changes a shape or the graph is declared static.
    `attnsweep.workloads.testing` checks these duties.
    """

    name: ClassVar[str]
    parameters: type[P]
    summary: ClassVar[str]
    """One line in the output of `attnsweep workloads`."""
    level_names: ClassVar[tuple[str, ...]]
    """Reference levels of all variants, without `solved`: the ledger's columns `level_<name>`."""
    verdicts: ClassVar[Verdicting]
    outcomes: ClassVar[Mapping[str, Outcome]] = {}
    """Outcomes of its own, by label, beside those of docs/outcomes.md."""
    events: ClassVar[Mapping[str, When]] = {}
    """Conditions by name: the first probe at which one held is the ledger's `event_<name>`."""
    loss_may_be_negative: ClassVar[bool] = False
    """Whether `eval_loss` may fall below 0, which a squared error or a cross-entropy never does. If not, and no
    reference level is negative, a training with a negative `eval_loss` counts as diverged."""
    head_score_names: ClassVar[tuple[str, ...]] = ()
    """Scores of attention heads: columns `score_<name>` of the ledger's `heads`; none for models without heads."""
    lenses: ClassVar[object] = None
    """`attnsweep.Lenses`, for a model whose attention or tokens `heads` and `why` cannot find by themselves."""
    files: ClassVar[tuple[str, ...]] = ()
    """Files that the user's code reads, by path from its folder. Wherever it trains, they are beside `__file__`."""

    @abstractmethod
    def build(self, parameters: P) -> nn.Module:
        """Builds the module of one training. Values in which trainings of a pack differ must be its parameters or
        buffers; `initial` may replace them."""

    def initial(self, module: nn.Module, lanes: Lanes[P]) -> State:
        """Initial values, (n_trainings, ...) by name, of all trained parameters, and of others and buffers where they
        are to be replaced; by default those of `draw_parameters`.

        `module` is that of ONE training, as built; `lanes.built` has what `build` gave all of them.
        """
        return draw_parameters(module, lanes.tensor("init_sigma", torch.float64), lanes.streams, lanes.built)

    def batch(self, lanes: Lanes[P], step: int) -> Batch:
        """The data of one step, (n_trainings, ...) by name; none if the loss needs no data."""
        del lanes, step
        return {}

    def batches(self, lanes: Lanes[P], steps: range) -> list[Batch]:
        """The data of these steps, at most `STEPS_AT_ONCE`, or of the first ones, as many as `BYTES_AT_ONCE` allows.
        Override it if drawing several steps together is faster."""
        first = self.batch(lanes, steps[0])
        n_bytes = sum(value.nbytes for value in first.values())
        return [first, *(self.batch(lanes, step) for step in steps[1 : max(BYTES_AT_ONCE // max(n_bytes, 1), 1)])]

    def probe_steps(self, parameters: P) -> tuple[int, ...] | None:
        """The steps of the probes, increasing from 0 to `n_steps`; `None` for those that the engine chooses
        (`probe_steps_of`). May read only static parameters."""
        del parameters
        return None

    def eval_batch(self, lanes: Lanes[P]) -> Batch:
        """The held-out data of all probes, (n_trainings, ...) by name; none if `eval_loss` is exact."""
        del lanes
        return {}

    def fresh_eval_batch(self, lanes: Lanes[P], step: int) -> Batch:
        """Data that replace entries of `eval_batch` at one step; reference levels are computed without them."""
        del lanes, step
        return {}

    @abstractmethod
    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """The loss that one training minimizes, a scalar."""

    def evaluate(self, module: nn.Module, batch: Batch) -> Batch:
        """At each probe, of one training: the held-out loss as `eval_loss`, a scalar, which is compared with levels,
        and further tensors for `measure`, such as the module's outputs."""
        return {"eval_loss": self.loss(module, batch)}

    def measure(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """One training's metrics other than its losses, scalars by name, without gradients.

        Args:
            batch: The held-out data with what `evaluate` returned, and, if the optimizer has computed them, the scalars
                `train_loss` and `train_grad_norm`.
        """
        del module, batch
        return {}

    @abstractmethod
    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The losses that `eval_loss` is compared with, scalars by name: `solved`, below which the task is solved, and
        any of `level_names`, the losses of simple predictors. `module` has its initial parameters.

        Where `eval_loss` is estimated on `batch`, estimate the levels on it too: against the exact level of the data's
        distribution, the loss would be off by the batch's sampling noise.
        """

    def score_heads(self, lanes: Lanes[P], state: State) -> HeadScores | None:
        """Scores all trainings' attention heads at a probe, from parameters and buffers, (n_trainings, ...) by name.
        `None` for a model without heads."""
        del lanes, state
        return None

    def certify(
        self, lanes: Lanes[P], state: State, outcome: NDArray[np.str_], detail: NDArray[np.str_]
    ) -> list[Certificate | None]:
        """Tests whether stuck trainings, given by their final parameters and buffers, are labelled correctly; `None`
        where the label has no test."""
        del state, outcome, detail
        return [None] * len(lanes.trainings)

    def final_metrics(self, lanes: Lanes[P], state: State) -> dict[str, NDArray[np.float64]]:
        """Measures ended trainings, such as BLEU, (n_trainings,) by metric name: their last points in `curves`."""
        del lanes, state
        return {}
