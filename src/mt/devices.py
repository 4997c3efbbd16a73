"""Where the work is done."""

import torch

from mt.errors import InputError


def choose_device(wanted: str, key: str = "training.device") -> torch.device:
    """The device asked for, or the best there is for `auto`.

    Args:
        wanted: auto, cpu, cuda or mps.
        key: the setting or option it comes from, for messages.

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
    return torch.device(wanted)
