"""Planning of a training run: `mt init` and `mt train --dry-run`."""
