"""Settings of clients: safe by default, refused with every problem at once."""

from typing import Any

import pytest
from trio.testing import MockClock

from tests.client.queue_fixture import work_queue
from tidelog.client.client import connect
from tidelog.client.config import ClientConfig, ConsumerConfig, ProducerConfig, configured
from tidelog.client.queue.receive.worker import WorkerConfig
from tidelog.wire.errors import ConfigError


def test_the_defaults_are_safe() -> None:
    producer = ProducerConfig()

    assert (producer.acks, producer.enable_idempotence) == ("all", True)
    assert ConsumerConfig().auto_offset_reset is None


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"acks": 2}, "acks must be"),
        ({"compression_type": "gzip"}, "compression_type must be one of none, lz4, zstd"),
        ({"linger": -1.0}, "linger must not be negative"),
        ({"batch_size": 0}, "batch_size must be above 0"),
        ({"buffer_memory": 1}, "buffer_memory must not be below batch_size"),
        (
            {"max_in_flight_requests_per_connection": 0},
            "max_in_flight_requests_per_connection must be above 0",
        ),
        ({"max_in_flight_requests_per_connection": 6}, "must not be above 5 when idempotent"),
        ({"delivery_timeout": 0.0}, "delivery_timeout must be above linger"),
    ],
)
def test_a_producer_setting_out_of_range_is_refused(
    settings: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        ProducerConfig(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"auto_offset_reset": "first"}, "auto_offset_reset must be"),
        ({"read_from": "anywhere"}, "read_from must be 'leader', 'followers' or 'nearest'"),
        ({"read_from": "nearest"}, "client_rack and read_from='nearest' go together"),
        ({"client_rack": "rack-a"}, "client_rack and read_from='nearest' go together"),
        ({"fetch_min_bytes": 0}, "fetch_min_bytes must be above 0"),
        ({"fetch_max_wait": -1.0}, "fetch_max_wait must not be negative"),
        ({"max_partition_fetch_bytes": 0}, "max_partition_fetch_bytes must be above 0"),
        ({"fetch_max_bytes": 1}, "fetch_max_bytes must not be below max_partition_fetch_bytes"),
        ({"prefetch_bytes": 0}, "prefetch_bytes must be above 0"),
        ({"max_uncompressed_batch_bytes": 0}, "max_uncompressed_batch_bytes must be above 0"),
    ],
)
def test_a_consumer_setting_out_of_range_is_refused(
    settings: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        ConsumerConfig(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"client_id": ""}, "client_id must not be empty"),
        ({"connect_timeout": 0.0}, "connect_timeout must be above 0"),
        ({"request_timeout": 0.0}, "request_timeout must be above 0"),
        ({"queue_delivery_timeout": 0.0}, "queue_delivery_timeout must be above 0"),
        ({"retry_backoff": 0.0}, "retry_backoff must be above 0"),
        ({"metadata_max_age": 0}, "metadata_max_age must be above 0"),
        ({"retry_backoff_max": 0.001}, "retry_backoff_max must not be below retry_backoff"),
    ],
)
def test_a_client_setting_out_of_range_is_refused(
    settings: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        ClientConfig(**settings)  # type: ignore[arg-type]


def test_all_invalid_settings_are_reported_at_once() -> None:
    with pytest.raises(ConfigError, match=r"fetch_min_bytes.*prefetch_bytes"):
        ConsumerConfig(fetch_min_bytes=0, prefetch_bytes=0)


def test_more_than_five_in_flight_is_legal_without_idempotence() -> None:
    assert (
        ProducerConfig(
            max_in_flight_requests_per_connection=50, enable_idempotence=False
        ).max_in_flight_requests_per_connection
        == 50
    )


@pytest.mark.parametrize(
    ("config_type", "name", "text"),
    [
        (ClientConfig, "request.timeout.ms", "did you mean request_timeout? it takes seconds"),
        (ConsumerConfig, "auto.offset.reset", "did you mean auto_offset_reset?"),
        (ProducerConfig, "linger_ms", "did you mean linger? it takes seconds"),
        (ProducerConfig, "batch.size", "did you mean batch_size?"),
        (WorkerConfig, "concurency", "did you mean concurrency?"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(
    config_type: type[object], name: str, text: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        configured(config_type, None, {name: 5}, of="client")

    assert str(raised.value) == f"there is no client setting {name!r}; {text}"


async def test_a_connection_refuses_an_unknown_setting() -> None:
    settings: dict[str, Any] = {"request_timeout_ms": 5}
    with pytest.raises(ConfigError, match="did you mean request_timeout"):
        async with connect("127.0.0.1:1", **settings):
            pass


@pytest.mark.parametrize(
    ("config_type", "name", "value"),
    [
        (ClientConfig, "request_timeout", "30s"),
        (ConsumerConfig, "auto_commit_interval", "5"),
        (ProducerConfig, "batch_size", "16k"),
        (WorkerConfig, "visibility_timeout", "1h"),
    ],
)
def test_a_text_in_place_of_a_number_is_refused(
    config_type: type[object], name: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=f"client: {name} must be a number, not '{value}'"):
        configured(config_type, None, {name: value}, of="client")


async def test_a_group_of_a_consumer_is_its_group_id(autojump_clock: MockClock) -> None:
    settings: dict[str, Any] = {"group": "billing"}
    async with work_queue(autojump_clock) as (client, _):
        with pytest.raises(ConfigError, match="no consumer setting 'group'; did you mean group_id"):
            client.consumer("orders", **settings)
