"""The Prometheus collector of clients, read as Prometheus reads it."""

import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from tests.tidelog.brokers import broker_in_a_thread
from tidelog import blocking
from tidelog.client.metrics.catalog import SECTIONS
from tidelog.prometheus import ClientCollector
from tidelog.wire.metrics.exposition import expose

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[blocking.Client]:
    with (
        broker_in_a_thread(tmp_path) as address,
        blocking.connect(address, client_id="billing") as client,
    ):
        client.admin.create_topic("orders", 2)
        yield client


def parsed(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def registry_of(collector: ClientCollector) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(collector)
    return registry


def scraped(registry: CollectorRegistry) -> Samples:
    return parsed(generate_latest(registry).decode())


def labels(**given: str) -> frozenset[tuple[str, str]]:
    return frozenset(given.items())


def test_a_scrape_has_what_was_done(client: blocking.Client) -> None:
    registry = registry_of(ClientCollector(client))
    with client.producer() as producer:
        producer.send_many("orders", [b"value"] * 500, partition=0)
        samples = scraped(registry)

    orders = labels(client="billing", topic="orders")
    all_sends = labels(client="billing", le="+Inf")
    assert samples["tidelog_client_produced_records_total", orders] == 500
    assert samples["tidelog_client_send_duration_seconds_bucket", all_sends] == 1
    assert samples["tidelog_client_batch_records_sum", labels(client="billing")] == 500
    assert samples["tidelog_client_producers", labels(client="billing")] == 1


def test_the_library_writes_the_same_as_the_broker_would(client: blocking.Client) -> None:
    statistics = client.statistics()

    class Frozen:
        def statistics(self) -> object:
            return statistics

    collector = ClientCollector(Frozen())  # type: ignore[arg-type]
    by_library = scraped(registry_of(collector))
    by_us = parsed(b"".join(expose(statistics.families())).decode())
    assert by_library == {
        (name, given | labels(client="billing")): value for (name, given), value in by_us.items()
    }


def test_a_scrape_is_described_and_has_every_metric(client: blocking.Client) -> None:
    collector = ClientCollector(client)

    described = [(each.name, each.type, each.documentation) for each in collector.describe()]
    collected = [(each.name, each.type, each.documentation) for each in collector.collect()]

    assert described == collected
    assert len(described) == sum(map(len, SECTIONS.values()))


def test_several_clients_differ_by_their_names(tmp_path: Path) -> None:
    with (
        broker_in_a_thread(tmp_path) as address,
        blocking.connect(address) as one,
        blocking.connect(address) as two,
    ):
        collector = ClientCollector(one)
        with pytest.raises(ValueError, match="named 'tidelog-python' already; give each client"):
            collector.add(two)
        collector.add(two, name="two")
        registry = registry_of(collector)
        both = scraped(registry)
        collector.remove("two")
        first = scraped(registry)

    name = "tidelog_client_connections"
    assert both[name, labels(client="tidelog-python")] == both[name, labels(client="two")] == 1
    assert (name, labels(client="two")) not in first


def test_threads_scrape_while_the_client_works(client: blocking.Client) -> None:
    registry = registry_of(ClientCollector(client))
    series = ("tidelog_client_consumed_records_total", labels(client="billing", topic="orders"))
    is_over = threading.Event()
    totals: tuple[list[float], list[float]] = ([], [])
    finished: list[list[float]] = []

    def scrape(found: list[float]) -> None:
        while not is_over.is_set():
            found.append(scraped(registry).get(series, 0.0))
        finished.append(found)  # Not after an exception.

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=scrape, args=(found,)) for found in totals]
    try:
        for thread in threads:
            thread.start()
        for number in range(1, 16):
            client.queue(f"queue {number}")
            with client.producer() as producer:
                producer.send_many("orders", [b"value"] * 20)
            with client.consumer("orders", auto_offset_reset="earliest") as consumer:
                assert sum(1 for _ in consumer.records(consumer.end_offsets())) == 20 * number
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)

    assert len(finished) == 2
    assert all(found == sorted(found) and len(set(found)) > 1 for found in totals)
    assert client.statistics().consumers.topics["orders"].records == 20 * sum(range(1, 16))


def test_the_server_of_the_library_serves_them(client: blocking.Client) -> None:
    server, thread = start_http_server(
        0, addr="127.0.0.1", registry=registry_of(ClientCollector(client))
    )
    try:
        address = f"http://127.0.0.1:{server.server_port}/metrics"
        with closing(urllib.request.urlopen(address)) as reply:
            samples = parsed(reply.read().decode())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

    assert samples["tidelog_client_connections", labels(client="billing")] == 1


def test_a_missing_library_is_named() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "try: import tidelog.prometheus\n"
        "except ImportError as error: print(error)"
    )
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert said == (
        "tidelog.prometheus cannot be imported: prometheus_client is missing;"
        " run: pip install 'tidelog[prometheus]'\n"
    )
