"""Compiles C++ sources to libraries, once per machine."""

import fcntl
import hashlib
import os
import platform
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from attnsweep.workloads.engine.executors import NoCompilerError

_OPTIONS = (
    *("-std=c++20", "-O3", "-shared", "-fPIC", "-w", "-Wno-psabi", "-fopenmp-simd"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
    # GCC 12 takes some functions with `omp simd` for functions without an effect, and leaves out their calls.
    *("-fno-ipa-pure-const", "-fno-ipa-modref"),
)
_VECTORS = {"AVX512": ("-march=x86-64-v4", "-mprefer-vector-width=512"), "AVX2": ("-march=x86-64-v3",)}


def compiled_engine() -> str:
    """What the last bits of a program's results depend on, besides its source; a `NoCompilerError` if this machine
    cannot compile programs, or has no folder to store them."""
    _folder()
    return f"compiled, {_vectors()}, {compiler()}, {' '.join(platform.libc_ver())}"


def _vectors() -> str:
    found = torch.backends.cpu.get_cpu_capability()
    if found not in _VECTORS:
        raise NoCompilerError("the processor has no AVX2 instructions")
    return found.lower()


@cache
def compiler() -> str:
    """The first line of the C++ compiler's `--version`; a `NoCompilerError` if there is none."""
    try:
        result = subprocess.run([_cxx(), "--version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoCompilerError(f"there is no C++ compiler ({_cxx()}): install g++, or set CXX") from error
    return result.stdout.splitlines()[0]


def _cxx() -> str:
    return os.environ.get("CXX", "g++")


def library_of(source: str) -> Path:
    """Compiles a program, unless this machine did so before; a `NoCompilerError` if that or storing it fails."""
    command = [_cxx(), *_OPTIONS, *_VECTORS[_vectors().upper()]]
    key = hashlib.sha256("\n".join([source, *command[1:], compiled_engine()]).encode()).hexdigest()[:32]
    library = _folder() / f"{key}.so"
    try:
        with library.with_suffix(".lock").open("a") as lock:
            # One process compiles; all others of this machine that need the program wait.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not library.exists():
                _compile(command, source, library)
    except OSError as error:
        raise NoCompilerError(
            f"a compiled program cannot be stored ({error}): set XDG_CACHE_HOME and TMPDIR"
        ) from error
    return library


def _compile(command: Sequence[str], source: str, library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        file, new = Path(folder, "step.cpp"), Path(folder, "step.so")
        file.write_text(source)
        found = subprocess.run(
            [*command, str(file), "-o", str(new), "-lmvec", "-lm"], capture_output=True, text=True, check=False
        )
        if found.returncode:
            raise NoCompilerError(f"{_cxx()} failed: {found.stderr[-1000:]}")
        with new.open("rb") as written:  # A power cut must not leave a part of it: running it would kill this process.
            os.fsync(written.fileno())
        new.replace(library)


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
