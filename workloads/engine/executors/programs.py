"""The compiled programs of a workload, by shape: compiled on this machine, or sent by a process that has compiled them.

A program is a library that is run as it is, so a process takes programs only from the one that sends it the workload's
code too.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, Self, TypeVar

from attnsweep.workloads.engine.compiling.gradient import GradientProgram, Parts, gradient_graph
from attnsweep.workloads.engine.compiling.libraries import Step, compiled, compiled_gradient, loaded, loaded_bytes
from attnsweep.workloads.engine.compiling.traces import NoRuleError
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.executors.blocks import Blocking, BlockProgram, TracedStep
from attnsweep.workloads.engine.lane_state import LaneState, shapes_of

Reads = TypeVar("Reads", Blocking, Parts)


@dataclass(frozen=True)
class Compiled(Generic[Reads]):
    """The program of a shape.

    Attributes:
        reads: How it reads trainings.
        library: Its file, or what that holds.
    """

    reads: Reads
    library: Path | bytes

    def as_sent(self) -> Self:
        """The program for a process on another machine."""
        return self if isinstance(self.library, bytes) else replace(self, library=self.library.read_bytes())

    def loaded(self) -> Step:
        """The program, to be run."""
        return loaded_bytes(self.library) if isinstance(self.library, bytes) else loaded(self.library)


@dataclass(frozen=True)
class KnownPrograms:
    """Programs by shape, of steps and of gradients; `None` for a shape that has none."""

    steps: dict[Hashable, Compiled[Blocking] | None] = field(default_factory=dict)
    gradients: dict[Hashable, Compiled[Parts] | None] = field(default_factory=dict)

    def as_sent(self) -> "KnownPrograms":
        """The same for a process on another machine."""
        return KnownPrograms(
            {shape: each and each.as_sent() for shape, each in self.steps.items()},
            {shape: each and each.as_sent() for shape, each in self.gradients.items()},
        )


class Programs:
    """The programs of a trainer's workload, by shape. What cannot be computed for a block has none.

    Args:
        known: Those that need not be traced and compiled here, of the same workload, code and versions. Others are
            added.
    """

    def __init__(self, known: KnownPrograms | None = None) -> None:
        self._known = known or KnownPrograms()
        self._steps: dict[Hashable, BlockProgram | None] = {}
        self._gradients: dict[Hashable, GradientProgram | None] = {}

    def of(self, lanes: LaneState, batch: Batch) -> BlockProgram | None:
        """The program of a shape's step, which is compiled at the first call on this machine.

        Args:
            lanes, batch: As `TracedStep.of` takes them.

        Raises:
            NoCompilerError: If this machine cannot compile it.
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
            found = self._known.steps[shape]
            self._steps[shape] = None if found is None else BlockProgram(found.reads, found.loaded())
        return self._steps[shape]

    def gradient_of(self, lanes: LaneState, batch: Batch) -> GradientProgram | None:
        """The program of a shape's gradient; see `of`."""
        shape = (lanes.problem.shape, shapes_of(batch))
        if shape not in self._known.gradients:
            try:
                graph = gradient_graph(lanes, batch)
            except NoRuleError:
                self._known.gradients[shape] = None
            else:
                library = compiled_gradient(graph, GradientProgram.examples(graph, lanes, batch))
                self._known.gradients[shape] = Compiled(graph.parts, library)
        if shape not in self._gradients:
            found = self._known.gradients[shape]
            self._gradients[shape] = None if found is None else GradientProgram(found.reads, found.loaded())
        return self._gradients[shape]
