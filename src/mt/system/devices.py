"""Device selection, CPU memory settings, and threads."""

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

from mt.errors import InputError
from mt.system.cpus import usable_cores

T = TypeVar("T")
Result = TypeVar("Result")

# Held while all of torch's threads are used: their number is global to the process, and `map_in_threads` changes it.
TORCH_THREADS = threading.Lock()


def usable_devices() -> dict[str, bool]:
    """Return the kinds of devices, the best first, and whether this machine has them."""
    return {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}


def choose_device(wanted: str, key: str = "training.device", local_rank: int | None = None) -> torch.device:
    """Return the named device, or the best available for `auto`; raise InputError if this machine does not have it.

    `key` is the configuration key or option that names it. `local_rank` is the GPU to use, by default the current one.
    """
    usable = usable_devices()
    if wanted == "auto":
        wanted = next(name for name, available in usable.items() if available)
    if wanted not in usable:
        raise InputError(f"{key}: '{wanted}' is none of auto, {', '.join(usable)}")
    if not usable[wanted]:
        raise InputError(f"{key}: this machine has no usable {wanted} device", _why_unusable(wanted))
    if wanted == "cuda":
        gpus, index = torch.cuda.device_count(), torch.cuda.current_device() if local_rank is None else local_rank
        if index >= gpus:
            raise InputError(
                f"{key}: no GPU for process {index + 1} on this machine, which has {gpus}",
                f"start {gpus} processes: torchrun --nproc-per-node={gpus}",
            )
        gpu = torch.device("cuda", index)
        torch.cuda.set_device(gpu)
        # Tensor cores compute fp32 products with 10 bits of mantissa, several times as fast.
        torch.backends.cuda.matmul.allow_tf32 = True
        # cuDNN's attention plans a kernel for every new shape, which nearly every batch has.
        torch.backends.cuda.enable_cudnn_sdp(False)
        return gpu
    if wanted == "cpu":
        # Fixes the number: until it is set, the BLAS library may use fewer threads, and with another number of threads
        # sums differ in their last bits.
        torch.set_num_threads(min(torch.get_num_threads(), usable_cores()))
        _keep_freed_memory()
        # oneDNN and torch's layer above it would cache a thousand shapes of half a megabyte each. Each number of rows
        # is a shape; a step uses some twenty, which may never occur again.
        for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
            os.environ.setdefault(name, "64")
    return torch.device(wanted)


def _why_unusable(wanted: str) -> str:
    """Return what to do about a device that is wanted and cannot be used."""
    if wanted == "cuda" and torch.version.cuda is None:
        return "this build of torch has no CUDA: install one that has (pytorch.org), or set it to auto or cpu"
    if wanted == "cuda":
        return "`nvidia-smi` shows whether the driver works and is recent enough; or set it to auto or cpu"
    return "set it to auto or cpu"


@cache
def has_bf16(device: torch.device) -> bool:
    """Return True if matrix products in bf16 are faster than in fp32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return device.type == "cpu" and bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


@cache
def has_fp16(device: torch.device) -> bool:
    """Return True if matrix products in fp16 are faster than in fp32: on GPUs with tensor cores, from Volta on."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (7, 0)


@contextlib.contextmanager
def deterministic_algorithms() -> Iterator[None]:
    """Make every operator deterministic, or raise an error that names it; entered before CUDA is initialised."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS sums in a fixed order only with it
    before, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True)
    # It only helps in debugging, and takes time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


@cache
def has_flash_attention(device: torch.device) -> bool:
    """Return True if torch has FlashAttention for this device: an NVIDIA card of compute capability 8.0 or later."""
    if device.type != "cuda" or torch.version.hip is not None or not torch.backends.cuda.is_flash_attention_available():
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def widest_float(device: torch.device) -> torch.dtype:
    """Return the most precise float type of a device; MPS has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def _keep_freed_memory() -> None:
    """Make glibc keep freed memory: zeroing the new pages of a large tensor can take longer than computing it."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    m_trim_threshold, m_mmap_max = -1, -4  # malloc.h
    mallopt(m_mmap_max, 0)
    mallopt(m_trim_threshold, -1)


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes; 0 on Windows, where it is unknown.

    On Linux from /proc, because the kernel's ru_maxrss includes the parent process's peak.
    """
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS


def map_in_threads(compute: Callable[[T], Result], batches: Sequence[T], workers: int) -> list[Result]:
    """Return the results of batches that are computed at once, with one of torch's threads each.

    They do not wait for each other at every matrix product, as the threads of one batch do. A single worker uses all
    threads. The caller holds `TORCH_THREADS`.
    """
    if min(workers, len(batches)) <= 1:
        return list(map(compute, batches))
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(compute, batches))
    finally:
        torch.set_num_threads(threads)  # the workers changed the matrix library's global number
