"""Compiles programs of training steps, and runs them on the memory of tensors.

A program takes many steps of one training after another (or of 8 at once, if a step is tiny), so the bits of a training
depend on no other.
"""

import ctypes
from collections.abc import Callable, Hashable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from attnsweep.workloads.engine.compiling.building import compiler, library_of
from attnsweep.workloads.engine.compiling.emitting import Array
from attnsweep.workloads.engine.compiling.lowering import Program
from attnsweep.workloads.engine.compiling.operations import SCALARS
from attnsweep.workloads.engine.compiling.tracing import (
    GRADIENT,
    OPTIMIZER,
    Trace,
    fixed_inputs,
    gradient_trace,
    is_of_step,
    measures_trace,
    step_trace,
)
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.executors import Examine, NoCompilerError, NoRuleError
from attnsweep.workloads.engine.first_order import MOVES
from attnsweep.workloads.engine.lane_state import Batches, LaneState, shapes_of
from attnsweep.workloads.engine.layout import ROWS
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.vectorization import told_to_users

_KERNELS = Path(__file__).with_name("kernels.hpp")
_BLOCK, _TINY = 8, 60_000
"""A step without matrix products that computes fewer than `_TINY` numbers is taken by `_BLOCK` trainings at once."""
_LARGE = 2**16
"""One training at a time, inputs of more numbers and those that are no floats are read where they are, not copied."""
_STEPS_AT_ONCE = 64
C = TypeVar("C")
_ALIKE, _ROUNDING = 0.01, 1e-5
"""The allowed difference between what a program and PyTorch compute, as shares of the change and of the value."""

_SOURCE = """#define W {width}
{kernels}
struct Memory {{
bool outside = false;
{members}
}};
{names}
{functions}
extern "C" int run(void* const* at, const int64_t* stride, int64_t n_lanes, int64_t n_steps, const uint8_t* moves) {{
const std::unique_ptr<Memory> memory(new Memory);
Memory& m = *memory;
{constants}
for (int64_t lane = 0; lane < n_lanes; lane += W) {{
{loads}
for (int64_t step = 0; step < n_steps; step++) {{
void* const* now = at + {n_fixed} + step * {n_changing};
{loads_of_step}
{calls}
}}
{stores}
}}
return m.outside;
}}
"""


def source_of(trace: Trace, width: int) -> str:
    """The C++ source of a program that computes `width` trainings at a time; a `NoRuleError` if an operation cannot be
    compiled."""
    replaces = [trace.inputs.index(name) if name in trace.inputs else None for name in trace.results]
    program = Program(trace.graph, replaces)
    loops, inputs = program.loops, [value.array for value in program.inputs]
    fixed = [n for n, name in enumerate(trace.inputs) if not is_of_step(name)]
    changing = [n for n, name in enumerate(trace.inputs) if is_of_step(name)]
    own = [n for n, at in enumerate(replaces) if at is None]
    is_read_in_place = {
        array: width == 1 and n not in replaces and (array.c_type not in "fd" or array.size > _LARGE)
        for n, array in enumerate(inputs)
    }

    def member(array: Array) -> str:
        if is_read_in_place.get(array):
            return f"const {array.c_type}* {array.name};"
        return f"alignas(64) {array.c_type} {array.name}[{max(array.size, 1)}];"

    def load(array: Array, pointer: str, n: int) -> str:
        source = f"(const {SCALARS[array.c_type]}*){pointer}"
        if is_read_in_place[array]:
            return f"{array.name} = {source} + lane * stride[{n}];"
        return f"load(&{array.name}[0], {source}, stride[{n}], lane, n_lanes, {array.size});"

    def store(array: Array, n: int) -> str:
        pointer = f"({SCALARS[array.c_type]}*)at[{n}]"
        return f"store(&{array.name}[0], {pointer}, stride[{n}], lane, n_lanes, {array.size});"

    slots, rows, n_fixed = loops.place(), inputs[0], len(fixed) + len(own)
    places = [fixed.index(at) if at is not None else len(fixed) + own.index(n) for n, at in enumerate(replaces)]
    save_rows, restore_frozen = list[str](), list[str]()
    if 0 in replaces:
        save_rows.append(f"if (moves) memcpy(&m.old[0], &{rows.name}[0], sizeof(m.old));")
        restored = f"&{rows.name}[0], &m.old[0], moves, {rows.size}, lane, n_lanes, {rows.size}"
        restore_frozen.append(f"if (moves) hold({restored});")
    return _SOURCE.format(
        width=width,
        kernels=_KERNELS.read_text(),
        members="\n".join(
            [f"alignas(64) {c_type} {name}[{size}];" for name, c_type, size in slots]
            + [member(array) for array in loops.arrays if array.is_input]
            + [f"alignas(64) {rows.c_type} old[{rows.size}];"]
        ),
        names="\n".join(f"#define {array.name} m.{array.slot or array.name}" for array in loops.arrays),
        functions="\n".join(loops.functions()),
        constants="\n".join(_constant(array, value) for array, value in program.constants),
        loads="\n".join(load(inputs[n], f"at[{k}]", k) for k, n in enumerate(fixed)),
        n_fixed=n_fixed,
        n_changing=len(changing),
        loads_of_step="\n".join(load(inputs[n], f"now[{k}]", n_fixed + k) for k, n in enumerate(changing)),
        calls="\n".join([*save_rows, *(f"n{nest.number}(m);" for nest in loops.nests), *restore_frozen]),
        stores="\n".join(store(value.array, n) for n, value in zip(places, program.results, strict=True)),
    )


def _constant(array: Array, value: Tensor) -> str:
    numbers = (value.to(torch.int64) if value.dtype == torch.bool else value).flatten().tolist()
    texts = [{"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN"}.get(str(each), repr(each)) for each in numbers]
    scalar = SCALARS[array.c_type]
    return (
        f"static const {scalar} c_{array.name}[] = {{{', '.join(f'({scalar}){text}' for text in texts)}}};\n"
        f"load(&{array.name}[0], c_{array.name}, 0, 0, 1, {array.size});"
    )


def width_of(trace: Trace) -> int:
    return _BLOCK if not trace.n_multiplications and trace.n_numbers < _TINY else 1


class _Compiled:
    """A compiled trace; a `NoCompilerError` if it does not compute what PyTorch computes."""

    def __init__(self, trace: Trace) -> None:
        self._run = ctypes.CDLL(str(library_of(source_of(trace, width_of(trace))))).run
        self._check(trace)

    def _check(self, trace: Trace) -> None:
        """Compares results with PyTorch's: compilers have errors, which would go unnoticed."""
        with torch.no_grad():
            expected: list[Tensor] = trace.graph(*trace.examples)
        inputs = {
            name: value.clone(memory_format=torch.contiguous_format)
            for name, value in zip(trace.inputs, trace.examples, strict=True)
        }
        found = [
            inputs[n] if n in inputs else torch.empty(e.shape, dtype=e.dtype)
            for n, e in zip(trace.results, expected, strict=True)
        ]
        own = [value for name, value in zip(trace.results, found, strict=True) if name not in inputs]
        fixed = [value for name, value in inputs.items() if not is_of_step(name)]
        self._call([*fixed, *own], [[value for name, value in inputs.items() if is_of_step(name)]])
        before = dict(zip(trace.inputs, trace.examples, strict=True))
        # Where the true gradient is 0, Adam moves by the sign of a rounding error: its averages are compared instead.
        has_averages = any(name.startswith(f"{OPTIMIZER}/") and name.endswith(f"/{ROWS}") for name in trace.results)
        # A result that is 0 in exact arithmetic is the rounding error of what it is computed from.
        scale = max(float(value.double().nan_to_num(0, 0, 0).norm()) for value in (*expected, *trace.examples))
        for name, one, other in zip(trace.results, found, expected, strict=True):
            if not (name == ROWS and has_averages) and not _is_alike(one, other, before.get(name), scale):
                raise NoCompilerError(
                    f"{compiler()} made a program that computes {name} otherwise than PyTorch: use another compiler"
                    " (CXX), or --engine eager"
                )

    def _call(self, fixed: Sequence[Tensor], steps: Sequence[Sequence[Tensor]], moves: Tensor | None = None) -> None:
        """Changes the results among `fixed` in place. `steps`: what changes from step to step."""
        steps = [[_readable(value) for value in step] for step in steps]
        if len({tuple(value.stride(0) for value in step) for step in steps}) > 1:
            steps = [[value.contiguous() for value in step] for step in steps]
        pointers = [value.data_ptr() for value in (*fixed, *(value for step in steps for value in step))]
        strides = [value.stride(0) for value in (*fixed, *steps[0])]
        if self._run(
            (ctypes.c_void_p * len(pointers))(*pointers),
            (ctypes.c_int64 * len(strides))(*strides),
            ctypes.c_int64(len(fixed[0])),
            ctypes.c_int64(len(steps)),
            ctypes.c_void_p(None if moves is None else moves.data_ptr()),
        ):
            with told_to_users():
                raise IndexError("index out of range in self")  # PyTorch's own words


class CompiledStep(_Compiled):
    def __init__(self, trace: Trace, batch: Batch) -> None:
        super().__init__(trace)
        self._shapes, self._results = shapes_of(batch), trace.results

    def advance(self, lanes: LaneState, batches: Batches, until: int) -> None:
        optimizer, inputs = lanes.stepping, fixed_inputs(lanes)
        held = {name: _readable(value) for name, value in inputs.items()}
        moves = optimizer.constants.get(f"{MOVES}/{ROWS}")
        while optimizer.n_updates < until:
            start = optimizer.n_updates
            ahead = batches(start, min(until, start + _STEPS_AT_ONCE))
            drawn = list(takewhile(lambda batch: shapes_of(batch) == self._shapes, ahead))
            if not drawn:
                break
            rates = optimizer.ahead(range(start, start + len(drawn)))
            steps = [[*rate.values(), *batch.values()] for rate, batch in zip(rates, drawn, strict=True)]
            self._call([*held.values()], steps, None if moves is None else moves.contiguous())
            optimizer.n_updates += len(drawn)
        for name in self._results:
            if held[name] is not inputs[name]:
                inputs[name].copy_(held[name])


class CompiledGradient(_Compiled):
    def loss_and_gradient(
        self, rows: Tensor, buffers: State, batch: Batch, lanes: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        read = [_readable(value if lanes is None else value[lanes]) for value in (*buffers.values(), *batch.values())]
        rows = rows.detach().contiguous()
        loss, gradient = rows.new_empty(len(rows), 1), torch.empty_like(rows)
        n_buffers = len(buffers)
        self._call([rows, *read[:n_buffers], loss, gradient], [read[n_buffers:]])
        return loss[:, 0], gradient


class CompiledMeasures(_Compiled):
    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self._results = {
            name: node.meta["val"] for name, node in zip(trace.results, trace.graph_results(), strict=True)
        }

    def measured(self, rows: Tensor, buffers: State, batch: Batch, trained_on: Batch | None) -> tuple[State, Tensor]:
        rows = rows.detach().contiguous()
        found = {
            name: torch.empty(len(rows), *like.shape[1:], dtype=like.dtype) for name, like in self._results.items()
        }
        read = [_readable(value) for value in buffers.values()]
        self._call([rows, *read, *found.values()], [[*(trained_on or {}).values(), *batch.values()]])
        gradient = found.pop(GRADIENT)
        return found, gradient


def _is_alike(found: Tensor, expected: Tensor, before: Tensor | None, scale: float) -> bool:
    if not expected.is_floating_point():
        return torch.equal(found, expected)
    found, expected = found.double(), expected.double()
    moved = expected if before is None else expected - before
    allowed = _ALIKE * moved.norm() + _ROUNDING * max(scale, expected.norm())
    return not bool((found - expected).norm() > allowed)


def _readable(value: Tensor) -> Tensor:
    """Makes each training's numbers adjacent; trainings may share memory."""
    return value if value.is_contiguous() or (len(value) and value[0].is_contiguous()) else value.contiguous()


class Programs:
    """An `Executors`; a `NoCompilerError` if this machine cannot compile a program."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def _known_or_made(self, make: Callable[[], C], *key: Hashable) -> C | None:
        if key not in self._made:
            try:
                self._made[key] = make()
            except NoRuleError:
                self._made[key] = None
        return self._made[key]  # type: ignore[no-any-return]

    def of(self, lanes: LaneState, batch: Batch) -> CompiledStep | None:
        key = lanes.blueprint.shape, lanes.stepping.operations, shapes_of(batch)
        return self._known_or_made(lambda: CompiledStep(step_trace(lanes, batch), batch), *key)

    def gradient_of(self, lanes: LaneState, batch: Batch) -> CompiledGradient | None:
        key = lanes.blueprint.shape, shapes_of(batch)
        return self._known_or_made(lambda: CompiledGradient(gradient_trace(lanes, batch)), *key)

    def measures_of(
        self, lanes: LaneState, batch: Batch, trained_on: Batch | None, examine: Examine
    ) -> CompiledMeasures | None:
        key = "measures", lanes.blueprint.shape, shapes_of(batch), None if trained_on is None else shapes_of(trained_on)
        return self._known_or_made(lambda: CompiledMeasures(measures_trace(lanes, batch, trained_on, examine)), *key)
