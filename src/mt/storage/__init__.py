"""Run folders: paths, atomic writes, manifests, locks, stages."""
