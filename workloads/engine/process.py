"""Settings of PyTorch and MKL, on which a training's last bit depends, and of the C library, for its speed."""

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from torch.backends import mha

from attnsweep.workloads.errors import UserError

_MKL_CBWR_ALL, _MKL_CBWR_OFF, _MKL_CBWR_AUTO = -1, 1, 2
"""Constants of MKL's header file mkl_service.h."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Constants of glibc's header file malloc.h."""
_KEPT_BYTES = 2**30
_PRODUCTS = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]


@contextmanager
def training_settings() -> Iterator[None]:
    """Within, PyTorch has one thread: several would compete for the cores, and sum in another order. It multiplies
    float32 as float32, neither as TF32 on GPUs nor as bfloat16 on CPUs. A transformer layer in evaluation mode does not
    use the fused operation that has no gradient. The C library keeps freed memory in the process, also afterwards."""
    _keep_freed_memory()
    n_threads, dtype, is_fused = torch.get_num_threads(), torch.get_default_dtype(), mha.get_fastpath_enabled()
    precisions = [products.fp32_precision for products in _PRODUCTS]
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float32)
    mha.set_fastpath_enabled(False)
    for products in _PRODUCTS:
        products.fp32_precision = "ieee"
    try:
        with torch.enable_grad():
            yield
    finally:
        torch.set_num_threads(n_threads)
        torch.set_default_dtype(dtype)
        mha.set_fastpath_enabled(is_fused)
        for products, precision in zip(_PRODUCTS, precisions, strict=True):
            products.fp32_precision = precision


@cache
def _keep_freed_memory() -> None:
    """glibc would return large tensors' memory to the system, which clears it anew: half a probe's time."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        for option in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            set_option(option, _KEPT_BYTES)


def processor() -> str:
    """The processor's type, the vector instructions that PyTorch uses, and MKL's branch: `x86_64, AVX512, MKL 14`."""
    found = f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    mode = _mkl("mkl_serv_cbwr_get", _MKL_CBWR_ALL)
    branch = _mkl("mkl_serv_cbwr_get_auto_branch") if mode == _MKL_CBWR_AUTO else mode
    return found if branch is None else f"{found}, MKL {branch}"


def check_rounding() -> None:
    """Refuses a process in which MKL multiplied before `import attnsweep` set `MKL_CBWR`, which it reads only then:
    products may round differently for different memory alignments."""
    if _mkl("mkl_serv_cbwr_get", _MKL_CBWR_ALL) == _MKL_CBWR_OFF:
        given = f"the value {os.environ['MKL_CBWR']}, set after PyTorch had multiplied matrices in this process"
        fix = "restart Python, and set it in the environment or import attnsweep before PyTorch is used"
        raise UserError("MKL_CBWR", given=given, expected="a value set before the first matrix product", fix=fix)


def _mkl(function: str, *arguments: int) -> int | None:
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not (torch.backends.mkl.is_available() and library.exists()):
        return None
    try:
        result: int = getattr(ctypes.CDLL(str(library)), function)(*arguments)
    except AttributeError:
        return None
    return result
