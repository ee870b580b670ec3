"""The compiled programs of a workload, one per set of static parameters. They are compiled here or sent by another
process.

A program is a library of machine code, which could do anything. So a process accepts programs only from the process
that also sends it the workload's code.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, Self, TypeAlias, TypeVar

from attnsweep.workloads.engine.compiling.gradient import GradientProgram, gradient_graph
from attnsweep.workloads.engine.compiling.libraries import (
    Step,
    compiled,
    compiled_gradient,
    loaded,
    loaded_bytes,
    merged,
)
from attnsweep.workloads.engine.compiling.traces import NoRuleError
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.executors.blocks import Blocking, BlockProgram, TracedStep
from attnsweep.workloads.engine.executors.graphs import Graphs
from attnsweep.workloads.engine.lane_state import LaneState, shapes_of

Reads = TypeVar("Reads", Blocking, None)


@dataclass(frozen=True)
class Compiled(Generic[Reads]):
    """A compiled program for trainings with equal static parameters: its machine code, and which inputs it reads."""

    reads: Reads
    library: Path | bytes

    def as_sent(self) -> Self:
        """Replaces the program's file by its content, for sending it to a process on another machine."""
        return self if isinstance(self.library, bytes) else replace(self, library=self.library.read_bytes())

    def loaded(self) -> Step:
        return loaded_bytes(self.library) if isinstance(self.library, bytes) else loaded(self.library)


@dataclass(frozen=True)
class KnownPrograms:
    """The compiled programs for steps and for gradients, by a key that is equal for trainings that can share a program;
    `None` if no program is possible for a key."""

    steps: dict[Hashable, Compiled[Blocking] | None] = field(default_factory=dict)
    gradients: dict[Hashable, Compiled[None] | None] = field(default_factory=dict)

    def as_sent(self) -> "KnownPrograms":
        """Returns the known compiled programs in a form for a process on another machine: with the contents of each
        program's file in place of the file."""
        return KnownPrograms(
            {shape: program and program.as_sent() for shape, program in self.steps.items()},
            {shape: program and program.as_sent() for shape, program in self.gradients.items()},
        )


class Programs:
    """Compiles a workload's training steps to programs for a CPU, each of which trains many trainings at once. Keeps
    the programs for later packs (groups of trainings that are trained together).

    Args:
        known: Programs of the same workload, code and versions, which need not be compiled here. New ones are added to
            it.
    """

    def __init__(self, known: KnownPrograms | None = None) -> None:
        self._known = known or KnownPrograms()
        self._steps: dict[Hashable, BlockProgram | None] = {}
        self._gradients: dict[Hashable, GradientProgram | None] = {}

    def of(self, lanes: LaneState, batch: Batch) -> BlockProgram | None:
        """Returns the compiled program that takes a step of the given trainings; `None` if such a step cannot be
        compiled.

        The program is compiled at the first call on this machine.

        Raises:
            NoCompilerError: If this machine cannot compile the program.
        """
        shape = (lanes.problem.shape, lanes.stepping.operations, shapes_of(batch))
        if shape not in self._known.steps:
            try:
                traced = TracedStep.of(lanes, batch)
            except NoRuleError:
                self._known.steps[shape] = None
            else:
                self._known.steps[shape] = Compiled(traced.blocking, compiled(traced.step, traced.examples))
        if shape not in self._steps:
            program = self._known.steps[shape]
            self._steps[shape] = None if program is None else BlockProgram(program.reads, program.loaded())
        return self._steps[shape]

    def gradient_of(self, lanes: LaneState, batch: Batch) -> GradientProgram | None:
        """Returns the compiled program for loss and gradient of the given trainings; `None` if they cannot be compiled,
        or if this would save no time."""
        shape = (lanes.problem.shape, shapes_of(batch))
        if shape not in self._known.gradients:
            try:
                graph = gradient_graph(lanes, batch)
            except NoRuleError:
                self._known.gradients[shape] = None
            else:
                library = compiled_gradient(graph, GradientProgram.examples(lanes, batch))
                self._known.gradients[shape] = Compiled(None, library)
        if shape not in self._gradients:
            program = self._known.gradients[shape]
            self._gradients[shape] = None if program is None else GradientProgram(program.loaded())
        return self._gradients[shape]


Executors: TypeAlias = Programs | Graphs
"""Objects that make and keep the executors of a workload, one per set of static parameters. `of` returns an executor,
which takes training steps in place of `vmap`: its `advance` trains all given trainings up to a step, or until a batch
has a shape for which the executor was not compiled. `gradient_of` returns a program of loss and gradient, for trainings
without an executor."""


def executors_on(device: str, engine: str) -> Executors | None:
    """Returns the object that compiles or captures a trainer's steps on this device; `None` if PyTorch runs every
    operation one by one.

    Args:
        engine: `blocks` compiles steps on a CPU for blocks of trainings, `merged` compiles steps on a GPU for all
            trainings of a pack. Either means `vmapped` (without compiling) on the other device.
    """
    if device == "cuda":
        return Graphs(compiler=merged if engine == "merged" else None)
    return Programs() if engine == "blocks" else None
