"""Where the work is done."""

import ctypes
import os
import resource
import sys
from functools import cache
from pathlib import Path

import torch

from mt.errors import InputError


def choose_device(wanted: str, key: str = "training.device", local_rank: int = 0) -> torch.device:
    """The device asked for, or the best there is for `auto`.

    Args:
        wanted: auto, cpu, cuda or mps.
        key: the setting or option it comes from, for messages.
        local_rank: the number of this process on its machine; it takes the GPU of that number.

    Raises:
        InputError: this machine has no such device.
    """
    usable = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        wanted = next(name for name, is_there in usable.items() if is_there)
    if wanted not in usable:
        raise InputError(f"{key}: '{wanted}' is none of auto, {', '.join(usable)}")
    if not usable[wanted]:
        raise InputError(f"{key}: this machine has no usable {wanted} device", "set it to auto or cpu")
    if wanted == "cuda":
        gpu = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(gpu)
        return gpu
    if wanted == "cpu":
        # The same number, but from now on fixed: until it is set, the matrix library may take fewer threads than that,
        # and numbers added up by others differ in their last bits.
        torch.set_num_threads(torch.get_num_threads())
        _keep_freed_memory()
        _bound_onednn_caches()
    return torch.device(wanted)


@cache
def has_bf16(device: torch.device) -> bool:
    """True where products of bf16 numbers are faster than those of fp32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and bool(torch.cpu.get_capabilities().get("avx512_bf16"))


def widest_float(device: torch.device) -> torch.dtype:
    """The most precise numbers that a device has; Apple's have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def _keep_freed_memory() -> None:
    """Tells glibc to keep memory that tensors give back.

    By default each large tensor is a mapping of its own, given back when freed; the next one's pages are then zeroed by
    the kernel one by one, which can take longer than what is computed there.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    m_trim_threshold, m_mmap_max = -1, -4  # malloc.h
    mallopt(m_mmap_max, 0)
    mallopt(m_trim_threshold, -1)


def _bound_onednn_caches() -> None:
    """Tells oneDNN, and torch's layer above it, to remember few shapes.

    Each number of rows is a shape of its own, half a megabyte large, and both remember a thousand unless told
    otherwise. A step needs some twenty of them, again in each layer, and may never see them again.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "64")


def peak_memory() -> int:
    """The most memory this process has held, in bytes.

    On Linux the kernel's number for a process counts what the one held that started it, too; this one does not.
    """
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if sys.platform == "linux" else 1)
