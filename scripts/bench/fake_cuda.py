"""CUDA without a GPU: real code runs on tensors that have shapes and a device, and a GPU's work is counted.

    fake_gpu       a context in which tensors on "cuda" have no memory, and every operator, copy and wait is seen
    fake_cuda.cpp  the device that a CPU build of torch lacks

Torch asks for its devices once, when it is imported. So this module must be imported before torch, in a process of its
own; the library is compiled once into the user's cache.
"""

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock


def build_device() -> Path:
    """Compile the device for the installed torch unless the cache has it; return the library."""
    from filelock import FileLock

    source = Path(__file__).with_suffix(".cpp")
    folder = Path(importlib.util.find_spec("torch").origin).parent
    built_for = f"{importlib.metadata.version('torch')} in {folder}"
    key = hashlib.sha256(source.read_bytes() + built_for.encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mt-tests"
    library = cache / f"fake_cuda-{key}.so"
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "lock"):
        if not library.exists():
            unfinished, libraries = library.with_suffix(".unfinished"), folder / "lib"
            options = ["-std=c++20", "-w", "-shared", "-fPIC", f"-I{folder / 'include'}", "-o", str(unfinished)]
            link = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-ltorch_cpu", "-lc10"]
            subprocess.run([shutil.which("g++") or "c++", *options, str(source), *link], check=True)
            unfinished.rename(library)
    return library


assert "torch" not in sys.modules, "import fake_cuda before torch"
ctypes.CDLL(str(build_device()), mode=ctypes.RTLD_GLOBAL)

import torch  # noqa: E402
import torch.cuda.amp.common  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils import _foreach_utils  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map_only  # noqa: E402
from torch.utils.flop_counter import flop_registry  # noqa: E402

from mt.model import loss  # noqa: E402

CUDA = torch.device("cuda", 0)
_READS_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}  # reads values of masks only
_FREE = {"_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}


class GpuTensor(Tensor):
    """A tensor on "cuda" that has no memory, but a twin on another device."""

    twin: Tensor

    @staticmethod
    def of(twin: Tensor) -> "GpuTensor":
        layout = twin.shape, twin.stride(), twin.storage_offset()
        with torch.inference_mode(False):
            x: GpuTensor = Tensor._make_wrapper_subclass(GpuTensor, *layout, dtype=twin.dtype, device=CUDA)
        x.twin = twin
        return x

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} on a GPU that is gone: `fake_gpu` has ended")


@dataclass(frozen=True)
class Operator:
    """An operator that launches kernels: bytes of the tensors read and written, operations of matrix products."""

    name: str
    phase: str
    bytes: int
    flops: int


class FakeGpu(TorchDispatchMode):
    """Runs operators on the twins of tensors; arguments on different devices raise. Made by `fake_gpu`.

    Args:
        values: twins are on the CPU, for code whose path depends on values. Without, they have shapes only, and reading
            a value raises.

    Attributes:
        operators: all but views and allocations.
        copies: from the CPU to the GPU, each as its place in the source.
        waits: places at which the CPU waits for the GPU: values read, and copies that block or are of pageable memory.
        phase: recorded with the operators to come.
    """

    def __init__(self, values: bool = False) -> None:
        super().__init__()
        self.operators: list[Operator] = []
        self.copies: list[str] = []
        self.waits: list[str] = []
        self.phase = ""
        self._values = values
        self._twins = torch.device("cpu" if values else "meta")

    def move(self, model: nn.Module) -> None:
        """Move a model to the GPU; `nn.Module.to` would untie tied matrices."""
        moved: dict[Tensor, Tensor] = {}
        for module in model.modules():
            for tensors in (module._parameters, module._buffers):
                for name, x in tensors.items():
                    if x is not None and x not in moved:
                        gpu = x.detach().pin_memory().to(CUDA, non_blocking=True)
                        moved[x] = nn.Parameter(gpu, x.requires_grad) if isinstance(x, nn.Parameter) else gpu
                    if x is not None:
                        tensors[name] = moved[x]
        self.copies.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), func._opname
        if torch.is_inference_mode_enabled():  # in which torch does not decompose composite operators
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        if name in ("is_pinned", "_pin_memory"):
            return hasattr(args[0], "pinned") if name == "is_pinned" else _pin(args[0].clone())
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        on_gpu = [isinstance(x, GpuTensor) for x in tensors]
        device = kwargs.get("device")
        if kwargs.pop("pin_memory", False):  # an allocation on the CPU
            like = any(on_gpu)  # empty_like
            return _pin(torch.ones(tensors[0].shape, dtype=tensors[0].dtype) if like else func(*args, **kwargs))
        if not any(on_gpu) and (device is None or device.type == "cpu"):
            return func(*args, **kwargs)
        non_blocking = kwargs.get("non_blocking") or any(x is True for x in args[2:])
        if name == "copy_" and not on_gpu[0]:
            return self._download(args[0], args[1], non_blocking)
        if name == "_to_copy" and device is not None and device.type == "cpu":
            return self._download(torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype), args[0])
        if name in ("copy_", "_to_copy") and not on_gpu[-1]:
            self.copies.append(_place())
            if not (non_blocking and hasattr(tensors[-1], "pinned")):
                self._wait(name)
        elif strays := [x for x, gpu in zip(tensors, on_gpu, strict=True) if x.dim() and not gpu]:
            raise RuntimeError(f"{func} takes tensors on cuda and one on the CPU {list(strays[0].shape)}")
        return self._run(func, args, kwargs)

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if _has_mask(args[1]) if func._opname in _INDEXING else _READS_VALUES.intersection(func.tags):
            self._wait(func._opname)
        gpu_tensors: dict[int, Tensor] = {}

        def twin_of(x: Tensor) -> Tensor:
            twin = x.twin if isinstance(x, GpuTensor) else x.to(self._twins)
            gpu_tensors[id(twin)] = x
            return twin

        if "device" in kwargs:
            kwargs["device"] = self._twins
        twins, twin_kwargs = tree_map_only(Tensor, twin_of, (args, kwargs))
        twin_result = func(*twins, **twin_kwargs)
        result = tree_map_only(
            Tensor, lambda x: gpu_tensors[id(x)] if id(x) in gpu_tensors else GpuTensor.of(x), twin_result
        )
        self._count(func, args, kwargs, result, (twins, twin_kwargs, twin_result))
        return result

    def _download(self, destination: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        if not (non_blocking and hasattr(destination, "pinned")):
            self._wait("copy")
        return destination.copy_(source.twin) if self._values else destination  # type: ignore[attr-defined]

    def _wait(self, name: str) -> None:
        if not self._values:
            raise AssertionError(f"{_place()} waits for the GPU in {name}")
        self.waits.append(_place())

    def _count(self, func: Any, args: Any, kwargs: Any, result: Any, twins: tuple[Any, Any, Any]) -> None:
        schema = func._schema
        written = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        if schema.is_mutable:
            given = {spec.name: value for spec, value in zip(schema.arguments, args, strict=False)} | kwargs
            specs = [spec for spec in schema.arguments if spec.alias_info is not None and spec.alias_info.is_write]
            written = [given[spec.name] for spec in specs if spec.name in given]
        elif func.is_view or func._opname in _FREE:
            return
        if size := _bytes(written):
            formula = flop_registry.get(func._overloadpacket)
            shapes = [x for x in twins[0] if not isinstance(x, torch.dtype)]  # which the formulas do not expect
            flops = formula(*shapes, **twins[1], out_val=twins[2]) if formula else 0
            self.operators.append(Operator(func._opname, self.phase, size + _bytes((args, kwargs)), flops))


@contextmanager
def fake_gpu(values: bool = False) -> Iterator[FakeGpu]:
    """Open `FakeGpu`, with the functions of torch that would ask a driver replaced."""
    patches: list[tuple[Any, str, Any]] = [
        (torch.cuda, "_lazy_init", lambda: None),
        (torch.cuda, "is_bf16_supported", lambda *_, **__: True),
        (torch.cuda, "get_device_capability", lambda *_: (9, 0)),
        (torch.backends.cuda, "is_flash_attention_available", lambda: True),
        (torch.cuda, "Event", mock.MagicMock),
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        (_foreach_utils, "_foreach_supported_types", [Tensor, nn.Parameter, GpuTensor]),
    ]
    if values:
        patches.append((loss, "rows_function", lambda *_: loss.plain_rows))
    else:
        patches.append((loss, "rows_function", lambda *_: _rows_kernel()))
        patches.append((F, "scaled_dot_product_attention", _cuda_attention))
    # Otherwise torch.tensor(..., device="cuda") would ask for real memory.
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with ExitStack() as stack:
            for owner, name, value in patches:
                stack.enter_context(mock.patch.object(owner, name, value))
            yield stack.enter_context(FakeGpu(values))
    finally:
        torch._C._set_only_lift_cpu_tensors(False)


def _rows_kernel() -> Any:
    """Return the loss's Triton kernel, or the plain operators where Triton is missing."""
    if importlib.util.find_spec("triton") is None:
        return loss.plain_rows
    from mt.model.loss_kernel import cross_entropy_rows

    return cross_entropy_rows


def _has_mask(indices: Any) -> bool:
    return any(x is not None and x.dtype == torch.bool for x in indices)


def _bytes(tensors: Any) -> int:
    return sum(x.numel() * x.element_size() for x in tree_leaves(tensors) if isinstance(x, Tensor))


def _pin(x: Tensor) -> Tensor:
    x.pinned = True  # type: ignore[attr-defined]
    return x


def _place() -> str:
    """Return the innermost line of mt that is running."""
    frame: Any = sys._getframe()
    while frame is not None and "/mt/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return "?" if frame is None else f"mt/{frame.f_code.co_filename.split('/mt/')[-1]}:{frame.f_lineno}"


def _cuda_attention(
    queries: Tensor, keys: Tensor, values: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False,
) -> Tensor:  # fmt: skip
    """Call the kernels that a CUDA build chooses without cuDNN; the CPU build would write attention out."""
    aten = torch.ops.aten
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        queries, keys, values = queries.to(dtype), keys.to(dtype), values.to(dtype)
    if attn_mask is None and queries.dtype != torch.float32:
        result: Tensor = aten._scaled_dot_product_flash_attention(queries, keys, values, dropout_p, is_causal)[0]
        return result
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            zero, minus_infinity = (queries.new_full((), x) for x in (0.0, -torch.inf))
            attn_mask = torch.where(attn_mask, zero, minus_infinity)
        columns = attn_mask.shape[-1]
        if columns % 16:  # the kernel reads aligned rows
            attn_mask = F.pad(attn_mask, (0, 16 - columns % 16))[..., :columns]
        attn_mask = attn_mask.expand(*queries.shape[:3], columns)
    log_sums = torch.is_grad_enabled() and queries.requires_grad
    result = aten._scaled_dot_product_efficient_attention(
        queries, keys, values, attn_mask, log_sums, dropout_p, is_causal
    )[0]
    return result
