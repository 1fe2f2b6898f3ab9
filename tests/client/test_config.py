"""Settings of clients: safe by default, refused with every problem at once."""

import pytest

from tidelog.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from tidelog.wire.errors import ConfigError


def test_the_defaults_are_safe() -> None:
    producer = ProducerConfig()

    assert (producer.acks, producer.idempotent) == ("all", True)
    assert ConsumerConfig().auto_offset_reset is None


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"acks": 2}, "acks must be"),
        ({"compression": "gzip"}, "compression must be one of none, lz4, zstd"),
        ({"linger": -1.0}, "linger must not be negative"),
        ({"batch_bytes_max": 0}, "batch_bytes_max must be above 0"),
        ({"buffer_bytes_max": 1}, "buffer_bytes_max must not be below batch_bytes_max"),
        ({"max_in_flight": 0}, "max_in_flight must be above 0"),
        ({"max_in_flight": 6}, "must not be above 5 when idempotent"),
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
        ({"read_from": "nearest"}, "failure_domain and read_from='nearest' go together"),
        ({"failure_domain": "rack-a"}, "failure_domain and read_from='nearest' go together"),
        ({"min_bytes": 0}, "min_bytes must be above 0"),
        ({"max_wait": -1.0}, "max_wait must not be negative"),
        ({"partition_bytes_max": 0}, "partition_bytes_max must be above 0"),
        ({"bytes_max": 1}, "bytes_max must not be below partition_bytes_max"),
        ({"prefetch_bytes": 0}, "prefetch_bytes must be above 0"),
        ({"uncompressed_batch_bytes_max": 0}, "uncompressed_batch_bytes_max must be above 0"),
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
        ({"client_name": ""}, "client_name must not be empty"),
        ({"connect_timeout": 0.0}, "connect_timeout must be above 0"),
        ({"request_timeout": 0.0}, "request_timeout must be above 0"),
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


def test_all_problems_are_said_at_once() -> None:
    with pytest.raises(ConfigError, match=r"min_bytes.*prefetch_bytes"):
        ConsumerConfig(min_bytes=0, prefetch_bytes=0)


def test_more_than_five_in_flight_is_legal_without_idempotence() -> None:
    assert ProducerConfig(max_in_flight=50, idempotent=False).max_in_flight == 50
