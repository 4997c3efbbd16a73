"""Prometheus metrics."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self.requests = Counter("mt_requests", "Requests answered.", ("path", "status"), registry=registry)
        self.seconds = Histogram(
            "mt_request_seconds", "Seconds from a request to its answer.", ("path",), registry=registry
        )
        self.characters = Counter("mt_characters", "Characters translated.", ("source", "target"), registry=registry)
        sizes = [2**n for n in range(10)]
        self.batch = Histogram("mt_batch_sentences", "Sentences translated together.", buckets=sizes, registry=registry)
        self.waiting = Gauge("mt_waiting_sentences", "Sentences that wait or are being translated.", registry=registry)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return bytes(generate_latest(self._registry))
