"""Number formats of training: fp32, or matrix products in bf16 or fp16 with weights and sums in fp32.

Mixed precision is Micikevicius et al. 2018, arXiv:1710.03740. The choice of `training.precision: auto` is recorded in
the run, because a resume in another format would end with other weights.
"""

import time
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from mt.config import Config
from mt.console import log
from mt.model.build import TranslationModel
from mt.model.loss import fused_cross_entropy, with_bias
from mt.model.packing import Packing
from mt.storage import atomic
from mt.storage.manifest import recorded_choice
from mt.storage.run_dir import RunDir
from mt.system.devices import has_bf16, has_fp16
from mt.system.distributed import Distributed

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_TIMED_TOKENS, _TIMED_LENGTH, _ROUNDS = 2048, 32, 3
_MIN_SPEEDUP = 1.1  # of bf16; for less, the loss of precision is not worth it


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Return a context that computes matrix products in a number format; the weights stay in fp32."""
    return torch.autocast(device.type, dtype=DTYPES[precision], enabled=precision != "fp32")


def choose_precision(config: Config, model: TranslationModel, run: RunDir, distributed: Distributed) -> str:
    """Return the number format of a training: fp32, bf16 or fp16; the same in all ranks.

    `auto` takes bf16 on a GPU that computes in it, fp16 on one whose tensor cores support only that, and on a CPU the
    faster of fp32 and bf16, measured with this model if the processor has instructions for bf16.
    """
    wanted, device = config.training.precision, model.device
    if wanted != "auto":
        if distributed.is_main and not _is_native(wanted, device):
            log.warning(
                "training.precision: this %s emulates %s, so fp32 may be faster",
                "processor" if device.type == "cpu" else f"{device.type} device",
                wanted,
            )
        return wanted
    return distributed.broadcast(_recorded_choice(config, model, run) if distributed.is_main else "")


def _is_native(precision: str, device: torch.device) -> bool:
    return {"fp32": True, "bf16": has_bf16(device), "fp16": has_fp16(device)}[precision]


def _recorded_choice(config: Config, model: TranslationModel, run: RunDir) -> str:
    device = model.device
    record = recorded_choice(run.precision, "device", "precision")
    recorded = record["precision"] if record.get("device") == device.type else None
    if recorded is not None and _is_native(recorded, device):
        return str(recorded)
    precision = "bf16" if has_bf16(device) else "fp16" if has_fp16(device) else "fp32"
    if recorded is not None:  # on another processor or GPU
        log.warning("training.precision: %s from here on; this %s device has no %s", precision, device.type, recorded)
    seconds: dict[str, float] = {}
    if device.type == "cpu" and precision != "fp32":
        seconds = measure_formats(model, config.training.max_tokens)
        precision = "bf16" if seconds["fp32"] > _MIN_SPEEDUP * seconds["bf16"] else "fp32"
        log.info("%s, since bf16 is %.1f times as fast as fp32", precision, seconds["fp32"] / seconds["bf16"])
    atomic.write_json(run.precision, {"device": device.type, "precision": precision, "seconds": seconds})
    return precision


def measure_formats(model: TranslationModel, max_tokens: int) -> dict[str, float]:
    """Time a forward and backward pass of a batch of random tokens in fp32 and bf16; return the shortest, in seconds.

    The weights do not change, and no gradient remains.
    """
    length = min(_TIMED_LENGTH, model.max_positions or _TIMED_LENGTH)
    sentences = max(1, min(max_tokens, _TIMED_TOKENS) // length)
    generator = torch.Generator().manual_seed(0)
    vocab = min(layer.num_embeddings for layer in model.modules() if isinstance(layer, nn.Embedding))
    src_tokens, tgt_in = torch.randint(4, vocab, (2, sentences, length), generator=generator)
    src, tgt = Packing.of(src_tokens), Packing.of(tgt_in)
    seconds: dict[str, list[float]] = {"fp32": [], "bf16": []}
    model.train()
    for _ in range(_ROUNDS):  # alternating, since a machine's speed drifts
        for precision, times in seconds.items():
            started = time.perf_counter()
            with autocast(model.device, precision):
                states = model.states(src_tokens, tgt_in, src, tgt)
                loss, _ = fused_cross_entropy(*with_bias(states, model.output), tgt_in.flatten(), 0.1)
            loss.backward()  # type: ignore[no-untyped-call]
            times.append(time.perf_counter() - started)
            model.zero_grad(set_to_none=True)
    return {precision: min(times) for precision, times in seconds.items()}


class LossScale:
    """A factor on the loss that keeps small gradients within fp16's range, adapted while training.

    It halves after an update that was not finite, and doubles after 2,000 finite ones. The numbers stay on the device,
    so that nothing waits for it.
    """

    INITIAL, INTERVAL = 2.0**16, 2000

    def __init__(self, device: torch.device) -> None:
        self.scale = torch.full((), self.INITIAL, device=device)
        self._finite_updates = torch.zeros((), device=device)

    def unscale(self, model: nn.Module) -> None:
        """Divide the gradients of a scaled loss by the scale."""
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        torch._foreach_mul_(gradients, 1 / self.scale)

    def update(self, is_finite: Tensor) -> None:
        """Adapt the scale after an update; is_finite: a scalar, 1 or 0."""
        count = (self._finite_updates + 1) * is_finite
        grows = count >= self.INTERVAL
        self.scale *= torch.where(grows, 2.0, 0.5 + 0.5 * is_finite)
        self._finite_updates = torch.where(grows, 0.0, count)

    def state(self) -> tuple[float, int]:
        """Return the scale and the finite updates since it last changed, for a checkpoint."""
        return self.scale.item(), int(self._finite_updates.item())

    def load(self, state: tuple[float, int]) -> None:
        """Continue from the numbers of a checkpoint."""
        self.scale.fill_(state[0])
        self._finite_updates.fill_(state[1])
