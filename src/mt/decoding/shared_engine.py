"""An engine whose work several processes share."""

from collections.abc import Sequence

from mt.decoding.engine import Engine, Hypothesis, SearchOptions
from mt.system.distributed import Distributed


class SharedEngine:
    """Each process translates its part of the sentences; all get the whole, in order.

    Args:
        engine: this process's own.
        distributed: the processes; all must ask for the same translations.
    """

    def __init__(self, engine: Engine, distributed: Distributed) -> None:
        self._engine = engine
        self._distributed = distributed

    def translate(self, sentences: Sequence[Sequence[int]], options: SearchOptions) -> list[list[Hypothesis]]:
        """Token ids without specials to the n best hypotheses of each, in the order given."""
        return self._distributed.all_gather(self._engine.translate(self._distributed.shard(sentences), options))
