"""The machine: devices, CPUs, worker processes, torch.distributed."""
