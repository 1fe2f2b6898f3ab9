"""An exporter with a series of each metric in the catalog, for queries that need all of them."""

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate, count, product
from typing import Final

from tidelog.broker.metrics.catalog import SECTIONS
from tidelog.gateway.sqs.metrics import SECTIONS as SQS_SECTIONS
from tidelog.wire.metrics.metric import Metric, MetricKind

VALUES: Final[dict[str, tuple[str, ...]]] = {
    "action": ("SendMessage", "ReceiveMessage"),
    "api": ("PRODUCE", "FETCH"),
    "code": ("OK", "NOT_LEADER"),
    "dead_letter_queue": ("dead",),
    "kind": ("shrink", "expand", "planned", "failover", "unclean"),
    "severity": ("info", "warning", "error"),
    "state": ("leader", "under_replicated", "under_min_isr", "damaged", "leaderless", "fenced"),
    "error": ("", "ServiceUnavailable"),
    "group": ("billing",),
    "owner": ("payments",),
    "queue": ("orders", "dead"),
    "topic": ("clicks",),
}
"""Values of labels; others have one value."""


def exposition(scrape: int) -> str:
    """Return a series of each metric with each value of its labels; counters grow by scrape."""
    return "".join(
        line
        for section in (*SECTIONS.values(), *SQS_SECTIONS.values())
        for metric in section
        for line in _lines(metric, scrape)
    )


def _lines(metric: Metric, scrape: int) -> Iterator[str]:
    yield f"# TYPE {metric.name} {metric.kind}\n"
    for values in product(*(VALUES.get(label, ("some",)) for label in metric.labels)):
        labels = [f'{name}="{value}"' for name, value in zip(metric.labels, values, strict=True)]
        if metric.kind is not MetricKind.HISTOGRAM:
            value = scrape if metric.kind is MetricKind.COUNTER else 5
            yield f"{metric.name}{{{','.join(labels)}}} {value}\n"
            continue
        bounds = [*map(str, metric.bounds), "+Inf"]
        for bound, total in zip(bounds, accumulate(scrape for _ in bounds), strict=True):
            bucket = ",".join([*labels, f'le="{bound}"'])
            yield f"{metric.name}_bucket{{{bucket}}} {total}\n"


@contextmanager
def exporting() -> Generator[str]:
    """Serve `/metrics` until the block ends; the value is `HOST:PORT`."""
    scrapes = count(1)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = exposition(next(scrapes)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Write nothing to standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
