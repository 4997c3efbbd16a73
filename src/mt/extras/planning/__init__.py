"""Before a training: what its corpus holds, what suits that, what it will cost here, and whether all is there."""
