"""Compiles the step of a block of trainings to a library of machine code, once per machine, and loads it.

All private names of PyTorch's compiler stand here; they were tested with PyTorch 2.13. The bits of a program depend on
its graph, the width of vectors and the compiler. The width is fixed (256 bits, no contraction of multiply and add), the
compiler is named by `block_engine`. A program is kept under a hash of all of them and of the engine's source, whose
rules make it from the graph of one training.
"""

import errno
import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from attnsweep.workloads.engine.compiling.gradient import GradientGraph, adding
from attnsweep.workloads.engine.compiling.lanes_last import OverLanes
from attnsweep.workloads.engine.compiling.step_graph import StepGraph
from attnsweep.workloads.engine.compiling.traces import IN_ONE_THREAD, constants_of

Step = Callable[[list[Tensor]], object]
"""A compiled step: updates its inputs in place."""

_MARCH = "x86-64-v3"
_OPTIONS = {
    "cpp.simdlen": 256,
    "cpp.march": _MARCH,
    # `compiler` has asked the processor; building a program for each kind of vectors would take seconds.
    "cpp.vec_isa_ok": True,
    "cpp.threads": 1,
    "cpp.enable_floating_point_contract_flag": "off",
    "size_asserts": False,
    "compile_threads": 1,
    # They stand in /tmp, in a folder whose name anybody can take first, and the first one costs half a compile.
    "aot_inductor.precompile_headers": False,
    # Allocating an intermediate tensor costs as much as computing it.
    "aot_inductor.allow_stack_allocation": True,
    # The graph says what is stored (`read_repeatedly`); more would only part a gradient from its update.
    "realize_reads_threshold": 40,
}
_STACK_BYTES = 2 * 1024**2
"""What a program keeps on the stack, of the usual 8 MiB. One that needs more uses the heap."""
_NAME, _MERGED = "blocks", "merged"
_VECTORS = "avx2"
_COMPILER_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
_SOURCE = Path(__file__).parent.parent
_REFUSALS = [os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)]


class NoCompilerError(Exception):
    """This machine cannot compile, or not run, a block's program."""


def block_engine() -> str:
    """What the bits of a block's program depend on besides PyTorch: the compiler, and the width of vectors.

    Raises:
        NoCompilerError: If this machine cannot compile it, or has nowhere to keep it.
    """
    _folder()
    return f"{_NAME}, {_VECTORS}, {compiler()}"


def merged_engine() -> str:
    """What the bits of a GPU's merged steps depend on besides PyTorch.

    Raises:
        NoCompilerError: If PyTorch cannot compile for a GPU here.
    """
    try:
        return f"{_MERGED}, triton {importlib.metadata.version('triton')}"
    except importlib.metadata.PackageNotFoundError as error:
        raise NoCompilerError("PyTorch's compiler for GPUs is missing: install triton") from error


def merged(graph: fx.GraphModule, examples: Sequence[Tensor]) -> Callable[..., object]:
    """A program of a graph on a GPU, for inputs like these."""
    with IN_ONE_THREAD, _compiling_in(_folder() / "compiler"):
        run: Callable[..., object] = torch._inductor.compile(graph, list(examples))
        return run


@cache
def compiler() -> str:
    """The C++ compiler, as its own first line says it.

    Raises:
        NoCompilerError: If there is none, or if the processor lacks the vectors.
    """
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        raise NoCompilerError(f"the processor has no {_VECTORS}")
    name = os.environ.get("CXX", "g++")
    try:
        found = subprocess.run([name, "--version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoCompilerError(f"there is no C++ compiler ({name}): install g++, or set CXX") from error
    return found.stdout.splitlines()[0]


def compiled(step: StepGraph, examples: Sequence[Tensor]) -> Path:
    """The file of a step's program for blocks, compiled if this machine has not done so before.

    Args:
        step: The step of one training.
        examples: A block of its inputs, with lanes last.

    Raises:
        NoCompilerError: If it has to be compiled and cannot be, or cannot be kept.
    """
    return _compiled(_key(step.graph, step.inputs, examples), lambda: over_block(step, examples), examples)


def compiled_gradient(gradient: GradientGraph, examples: Sequence[Tensor]) -> Path:
    """The file of a gradient's program for groups of lanes; see `compiled`.

    Args:
        gradient: What is computed.
        examples: From `GradientProgram.examples`.
    """
    key = _key(gradient.graph, (*gradient.names, str(gradient.parts.number)), examples)
    return _compiled(key, lambda: make_fx(adding(gradient), tracing_mode="fake")(*examples), examples)


def loaded(program: Path) -> Step:
    """A program, from its file."""
    run: Step = torch._C._aoti.AOTIModelContainerRunnerCpu(str(program), 1).run
    return run


def loaded_bytes(program: bytes) -> Step:
    """A program that another process has compiled, from what its file holds.

    Raises:
        NoCompilerError: If this user has no folder for programs.
    """
    # Not among the programs kept here: those are named by what they were compiled from.
    with _with_room(), tempfile.TemporaryDirectory(dir=_folder()) as folder:
        file = Path(folder) / "sent.so"
        file.write_bytes(program)
        return loaded(file)


def interpreted(step: StepGraph, examples: Sequence[Tensor]) -> Step:
    """What `compiled` compiles, computed operation by operation: the same formulas without the compiler.

    Args:
        step, examples: As `compiled` takes them.
    """
    graph = over_block(step, examples)
    return lambda inputs: graph(*inputs)


def over_block(step: StepGraph, examples: Sequence[Tensor]) -> fx.GraphModule:
    """The step as a graph on a block's inputs, which it updates in place."""
    places = [step.inputs.index(name) for name in step.updated]
    interpreter = OverLanes(step.graph)

    def update(*inputs: Tensor) -> list[Tensor]:
        found = interpreter.run(*inputs)
        for place, value in zip(places, found, strict=True):
            inputs[place].copy_(value.expand(inputs[place].shape))
        return [found[0].new_zeros(1)]

    with IN_ONE_THREAD:
        graph = make_fx(update, tracing_mode="fake")(*examples)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


def _compiled(key: str, graph: Callable[[], fx.GraphModule], examples: Sequence[Tensor]) -> Path:
    folder = _folder()
    library = folder / f"{key}.so"
    with _with_room(), IN_ONE_THREAD, (folder / f"{library.stem}.lock").open("a+") as lock:
        # One process compiles, the others of this machine wait for it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        # A full disk or a power cut may have damaged the program, and to run it would kill this process.
        if not library.exists() or lock.read() != _digest(library):
            _compile(graph(), examples, library)
            lock.truncate(0)
            lock.write(_digest(library))
    return library


@contextmanager
def _with_room() -> Iterator[None]:
    """Around compiling: a disk that is full or cannot be written says nothing against what is compiled.

    Raises:
        NoCompilerError: In place of the disk's error, which PyTorch's compiler wraps, and the C++ compiler only prints.
    """
    try:
        yield
    except Exception as error:
        said = "".join(traceback.format_exception(error))
        refusal = next((each for each in _REFUSALS if each in said), None)
        if refusal is None or isinstance(error, NoCompilerError):
            raise
        raise NoCompilerError(
            f"compiled programs cannot be kept in {_folder()} or {tempfile.gettempdir()} ({refusal}): make room there,"
            " or set XDG_CACHE_HOME and TMPDIR"
        ) from error


def _digest(library: Path) -> str:
    return hashlib.sha256(library.read_bytes()).hexdigest()


def _compile(graph: fx.GraphModule, examples: Sequence[Tensor], library: Path) -> None:
    compiler()
    with (
        tempfile.TemporaryDirectory(dir=library.parent) as folder,
        _compiling_in(library.parent / "compiler"),
        _with_more_on_stack(examples[0].element_size()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        options = _OPTIONS | {"aot_inductor.output_path": str(Path(folder) / "step.so")}
        made = torch._inductor.aot_compile(graph, tuple(examples), options=options)
        shutil.move(str(made), library.with_suffix(".new"))
    library.with_suffix(".new").replace(library)


@contextmanager
def _compiling_in(folder: Path) -> Iterator[None]:
    """Makes PyTorch's compiler keep its files here: its own folder in /tmp has a name that anybody can take first."""
    before = os.environ.get(_COMPILER_FOLDER)
    os.environ[_COMPILER_FOLDER] = str(folder)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_COMPILER_FOLDER, None)
        else:
            os.environ[_COMPILER_FOLDER] = before


@contextmanager
def _with_more_on_stack(bytes_of_a_number: int) -> Iterator[None]:
    from torch._inductor.codegen import cpp_wrapper_cpu_array_ref

    before = cpp_wrapper_cpu_array_ref.MAX_STACK_ALLOCATION_SIZE
    cpp_wrapper_cpu_array_ref.MAX_STACK_ALLOCATION_SIZE = _STACK_BYTES // bytes_of_a_number
    try:
        yield
    finally:
        cpp_wrapper_cpu_array_ref.MAX_STACK_ALLOCATION_SIZE = before


def _key(graph: fx.GraphModule, inputs: Sequence[str], examples: Sequence[Tensor]) -> str:
    shapes = [(str(value.dtype), tuple(value.shape)) for value in examples]
    constants = [
        (name, str(value.dtype), tuple(value.shape), value.tolist()) for name, value in constants_of(graph).items()
    ]
    content = (graph.code, inputs, shapes, constants, torch.__version__, compiler(), _source())
    return hashlib.sha256(repr(content).encode()).hexdigest()[:32]


def _source() -> str:
    """A digest of the code that makes a program from a graph, and calls it."""
    texts = (each.read_bytes() for each in sorted(_SOURCE.rglob("*.py")))
    return hashlib.sha256(b"".join(texts)).hexdigest()


def _folder() -> Path:
    """Where this user's programs are kept; nobody else may write there, since they are run.

    Raises:
        NoCompilerError: If this user cannot write there.
    """
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache_home / "attnsweep" / "programs"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise NoCompilerError(
            f"compiled programs cannot be kept in {folder} ({error.strerror}): set XDG_CACHE_HOME"
        ) from error
    return folder
