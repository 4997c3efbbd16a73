"""The stages of a run, in time order."""
