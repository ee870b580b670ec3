"""Compiles the training step of a block of trainings to machine code, once per machine, and loads the resulting
library.

Private names of PyTorch's compiler are used in this file only, and were tested with PyTorch 2.13. The bits of a
program's results depend on its graph, the width of vectors and the compiler. The width is fixed (256 bits, without
contraction of multiply and add), and `block_engine` names the compiler. A program is stored under a hash of all these
and of the engine's source code, whose rules make the program from the graph of one training.
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

from attnsweep.workloads.engine.compiling.gradient import GradientGraph, storing
from attnsweep.workloads.engine.compiling.lanes_last import OverLanes
from attnsweep.workloads.engine.compiling.step_graph import StepGraph
from attnsweep.workloads.engine.compiling.traces import IN_ONE_THREAD, constants_of

Step = Callable[[list[Tensor]], object]
"""The signature of a compiled step, which updates its inputs in place."""

_MARCH = "x86-64-v3"
_OPTIONS = {
    "cpp.simdlen": 256,
    "cpp.march": _MARCH,
    # `compiler` has already checked which vector instructions the processor has. PyTorch's own check would compile a
    # program for each type of vector, which takes seconds.
    "cpp.vec_isa_ok": True,
    "cpp.threads": 1,
    "cpp.enable_floating_point_contract_flag": "off",
    "size_asserts": False,
    "compile_threads": 1,
    # Precompiled headers are not used. They would lie in a folder of /tmp that any user can create first, and making
    # them takes half as long as compiling a program.
    "aot_inductor.precompile_headers": False,
    # Intermediate tensors are put on the stack, because allocating one on the heap costs as much as computing it.
    "aot_inductor.allow_stack_allocation": True,
    # PyTorch's compiler stores an intermediate value if it is read more often than this number of times. The number is
    # so large because our function `read_repeatedly` decides what is stored. With a lower one, the compiler would store
    # more values, and compute gradients and the updates of weights in separate loops.
    "realize_reads_threshold": 40,
}
_STACK_BYTES = 2 * 1024**2
"""The most bytes that a program puts on the stack, which usually has 8 MiB. Larger tensors are on the heap."""
_NAME, _MERGED = "blocks", "merged"
_VECTORS = "avx2"
_COMPILER_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
_SOURCE = Path(__file__).parent.parent
_REFUSALS = [os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)]


class NoCompilerError(Exception):
    """Raised if this machine cannot compile, store or run a program that trains many trainings at once. The message
    says why."""


def block_engine() -> str:
    """Names the compiler and the kind of vector instructions. Together with PyTorch, they determine the last bits of a
    compiled program's results.

    Raises:
        NoCompilerError: If this machine cannot compile programs, or has no folder to store them.
    """
    _folder()
    return f"{_NAME}, {_VECTORS}, {compiler()}"


def merged_engine() -> str:
    """Returns the name of the engine that compiles training steps for a GPU, with the version of Triton. This version,
    together with PyTorch's, determines the last bits of the results.

    Raises:
        NoCompilerError: If PyTorch cannot compile for a GPU here.
    """
    try:
        return f"{_MERGED}, triton {importlib.metadata.version('triton')}"
    except importlib.metadata.PackageNotFoundError as error:
        raise NoCompilerError("PyTorch's compiler for GPUs is missing: install triton") from error


def merged(graph: fx.GraphModule, examples: Sequence[Tensor]) -> Callable[..., object]:
    """Compiles a graph for a GPU. The program accepts inputs with the shapes of the given examples."""
    with IN_ONE_THREAD, _compiling_in(_folder() / "compiler"):
        run: Callable[..., object] = torch._inductor.compile(graph, list(examples))
        return run


@cache
def compiler() -> str:
    """Returns the first line of the C++ compiler's `--version`.

    Raises:
        NoCompilerError: If there is no compiler, or the processor lacks AVX2.
    """
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        raise NoCompilerError(f"the processor has no {_VECTORS} instructions")
    name = os.environ.get("CXX", "g++")
    try:
        result = subprocess.run([name, "--version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoCompilerError(f"there is no C++ compiler ({name}): install g++, or set CXX") from error
    return result.stdout.splitlines()[0]


def compiled(step: StepGraph, examples: Sequence[Tensor]) -> Path:
    """Compiles a training step for trainings that are computed together, unless this machine did so before. Returns the
    path of the compiled program.

    Args:
        examples: Example inputs for one block of trainings, with trainings as the last axis.

    Raises:
        NoCompilerError: If the program must be compiled and cannot be, or cannot be stored.
    """
    return _compiled(_key(step.graph, step.inputs, examples), lambda: over_block(step, examples), examples)


def compiled_gradient(gradient: GradientGraph, examples: Sequence[Tensor]) -> Path:
    """Compiles loss and gradient of a training, unless this machine did so before. Returns the program's
    file."""
    key = _key(gradient.graph, gradient.names, examples)
    return _compiled(key, lambda: make_fx(storing(gradient), tracing_mode="fake")(*examples), examples)


def loaded(program: Path) -> Step:
    run: Step = torch._C._aoti.AOTIModelContainerRunnerCpu(str(program), 1).run
    return run


def loaded_bytes(program: bytes) -> Step:
    """Loads a program that another process compiled, from the bytes of the program's file.

    Raises:
        NoCompilerError: If this user has no folder for programs.
    """
    # Programs that are kept on disk are named by hashes of their sources. The other process sends a program without its
    # source, so this program is written to a temporary file.
    with _with_room(), tempfile.TemporaryDirectory(dir=_folder()) as folder:
        file = Path(folder) / "sent.so"
        file.write_bytes(program)
        return loaded(file)


def interpreted(step: StepGraph, examples: Sequence[Tensor]) -> Step:
    """Returns a step that runs its graph operation by operation, without a compiler. The formulas are those of the
    compiled step."""
    graph = over_block(step, examples)
    return lambda inputs: graph(*inputs)


def over_block(step: StepGraph, examples: Sequence[Tensor]) -> fx.GraphModule:
    """Turns a graph that computes the optimizer step of one training into a graph that takes this step for many
    trainings at once. The new graph updates the parameters and the optimizer state in place."""
    places = [step.inputs.index(name) for name in step.updated]
    interpreter = OverLanes(step.graph)

    def update(*inputs: Tensor) -> list[Tensor]:
        results = interpreter.run(*inputs)
        for place, value in zip(places, results, strict=True):
            inputs[place].copy_(value.expand(inputs[place].shape))
        return [results[0].new_zeros(1)]

    with IN_ONE_THREAD:
        graph = make_fx(update, tracing_mode="fake")(*examples)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


def _compiled(key: str, graph: Callable[[], fx.GraphModule], examples: Sequence[Tensor]) -> Path:
    folder = _folder()
    library = folder / f"{key}.so"
    with _with_room(), IN_ONE_THREAD, (folder / f"{library.stem}.lock").open("a+") as lock:
        # The file lock lets one process compile the program, while all other processes of this machine that need it
        # wait.
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        # The digest is checked, because a full disk or a power cut may have damaged the stored program. Running a
        # damaged program would kill this process.
        if not library.exists() or lock.read() != _digest(library):
            _compile(graph(), examples, library)
            lock.truncate(0)
            lock.write(_digest(library))
    return library


@contextmanager
def _with_room() -> Iterator[None]:
    """Returns a context in which the errors of a full or read-only disk, during compiling, become `NoCompilerError`."""
    try:
        yield
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        refusal = next((text for text in _REFUSALS if text in trace), None)
        if refusal is None or isinstance(error, NoCompilerError):
            raise
        raise NoCompilerError(
            f"compiled programs cannot be stored in {_folder()} or {tempfile.gettempdir()} ({refusal}): free disk space"
            " there, or set XDG_CACHE_HOME and TMPDIR"
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
        library_file = torch._inductor.aot_compile(graph, tuple(examples), options=options)
        shutil.move(str(library_file), library.with_suffix(".new"))
    library.with_suffix(".new").replace(library)


@contextmanager
def _compiling_in(folder: Path) -> Iterator[None]:
    """The compiler's files go into `folder`: others could put files into its default one in /tmp."""
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
    texts = (file.read_bytes() for file in sorted(_SOURCE.rglob("*.py")))
    return hashlib.sha256(b"".join(texts)).hexdigest()


def _folder() -> Path:
    """Only this user may write there: a program that somebody else put there would be run."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache_home / "attnsweep" / "programs"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise NoCompilerError(
            f"compiled programs cannot be stored in {folder} ({error.strerror}): set XDG_CACHE_HOME to a writable"
            " folder"
        ) from error
    return folder
