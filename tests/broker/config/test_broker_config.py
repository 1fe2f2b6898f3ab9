"""Tests of the settings of a broker: their sources, and refused values."""

from pathlib import Path

import pytest

from tests.advice import part_of
from tidelog.broker.config.broker_config import (
    BrokerConfig,
    parse_address,
    parse_peers,
    resolve_config,
)
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.wire.errors import ConfigError

MiB = 1 << 20
DURATION = "it must be a duration such as 8d, 1h30m, 90s or 250ms"
NO_SQS = "without an address of SQS; set sqs_listen (--sqs-listen HOST:PORT)"
TWICE = "queued_max_request_bytes must be at least twice socket_request_max_bytes"


def loaded(text: str, tmp_path: Path, **environment: str) -> BrokerConfig:
    """Return the settings from a file of this text and these variables."""
    file = tmp_path / "tidelog.toml"
    file.write_text(text, encoding="utf-8")
    return resolve_config(file=str(file), environment=environment, flags={}).config


def problems_of(**settings: object) -> str:
    """Return the error line for settings that are given as flags."""
    with pytest.raises(ConfigError) as refusal:
        resolve_config(file=None, environment={}, flags=settings)
    return str(refusal.value)


def test_defaults_hold_without_other_sources() -> None:
    config = resolve_config(file=None, environment={}, flags={}).config

    assert config == BrokerConfig()
    # The default address is not reachable from other machines.
    assert config.listen == "127.0.0.1:8433"


def test_the_environment_overrides_the_file_and_a_flag_overrides_both(tmp_path: Path) -> None:
    file = tmp_path / "tidelog.toml"
    file.write_text('node_id = 2\nlisten = "h:2"\ndata_dir = "two"\n', encoding="utf-8")
    environment = {"TIDELOG_LISTEN": "h:3", "TIDELOG_DATA_DIR": "three"}

    resolved = resolve_config(
        file=str(file), environment=environment, flags={"data_dir": "four", "node_id": None}
    )

    assert (resolved.config.node_id, resolved.config.listen) == (2, "h:3")
    assert resolved.config.data_dir == "four"
    assert list(resolved.sources.items())[:5] == [
        ("data_dir", "--data-dir"),
        ("listen", "TIDELOG_LISTEN"),
        ("advertised", "default"),
        ("http_listen", "default"),
        ("node_id", str(file)),
    ]


def test_values_of_every_kind_are_parsed_from_text(tmp_path: Path) -> None:
    config = loaded(
        """
        socket_request_max_bytes = "32MiB"
        queued_max_request_bytes = 134217728
        stalled_request_timeout_ms = "10s"
        shutdown_grace_ms = 0
        max_connections = "500"
        log_format = "json"
        [topic_defaults]
        retention_ms = "1d"
        min_insync_replicas = 1
        """,
        tmp_path,
        TIDELOG_LOG_FLUSH_INTERVAL_MS="1min",
        TIDELOG_FETCH_MAX_BYTES="1 MiB",
    )

    assert config.socket_request_max_bytes == 32 * MiB
    assert config.queued_max_request_bytes == 128 * MiB
    assert (config.stalled_request_timeout_ms, config.shutdown_grace_ms) == (10_000, 0)
    assert (config.log_flush_interval_ms, config.fetch_max_bytes) == (60_000, MiB)
    assert (config.max_connections, config.log_format) == (500, "json")
    assert config.topic_defaults == {"retention_ms": "1d", "min_insync_replicas": "1"}


def test_foreign_variables_with_the_prefix_are_ignored() -> None:
    kubernetes = {"TIDELOG_SERVICE_HOST": "10.0.0.1", "TIDELOG_PORT": "tcp://10.0.0.1:8433"}

    assert resolve_config(file=None, environment=kubernetes, flags={}).config == BrokerConfig()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("node_id = ", "is not TOML"),
        ("node_id = 1\nnode_id = 2", "is not TOML"),
        ("nodeid = 1", "there is no setting 'nodeid'; did you mean node_id?"),
        ("node_id = 1.5", "node_id is 1.5, which is not a whole number"),
        ("node_id = true", "node_id is True, which is not a whole number"),
        ("listen = 8433", "listen is 8433, which is not text"),
        ("topic_defaults = 1", "topic_defaults is 1, which is not a table of names and values"),
        ("[node_id]\nx = 1", "which is not a whole number"),
    ],
)
def test_an_invalid_configuration_file_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        loaded(text, tmp_path)

    assert reason in str(refusal.value)
    assert "tidelog.toml" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_unreadable_configuration_file_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for file, reason in (
        (tmp_path / "missing", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (binary, "it is not UTF-8 text"),
    ):
        with pytest.raises(ConfigError) as refusal:
            resolve_config(file=str(file), environment={}, flags={})

        assert str(refusal.value) == f"cannot read the configuration file {file}: {reason}"


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("node_id", 0, "node_id must be at least 1, not 0"),
        ("node_id", "-1", "--node-id: node_id is '-1', it must be a whole number"),
        ("node_id", "1KiB", "--node-id: node_id is '1KiB', it must be a whole number"),
        ("node_id", "\u00b2", "--node-id: node_id is '\u00b2', it must be a whole number"),
        ("node_id", "9" * 5000, f"--node-id: node_id is '{'9' * 5000}', it must be a whole number"),
        (
            "socket_request_max_bytes",
            MiB,
            f"socket_request_max_bytes must be at least {2 * MiB}, not {MiB}",
        ),
        ("fetch_max_bytes", "1GiB", f"fetch_max_bytes must be at most {128 * MiB}, not {1 << 30}"),
        ("shutdown_grace_ms", -1, "shutdown_grace_ms must be at least 0, not -1"),
        (
            "stalled_request_timeout_ms",
            10,
            "stalled_request_timeout_ms must be at least 100, not 10",
        ),
        (
            "stalled_request_timeout_ms",
            "soon",
            f"--stalled-request-timeout-ms: stalled_request_timeout_ms is 'soon', {DURATION}",
        ),
        ("queued_max_request_bytes", "16MiB", f"{TWICE}, {32 * MiB}, not {16 * MiB}"),
        ("data_dir", "", "data_dir must not be empty"),
        ("log_level", "loud", "log_level is 'loud', it must be one of debug, info, warning, error"),
        ("advertised", "h:0", "advertised: clients cannot connect to port 0"),
        (
            "listen",
            "",
            "listen: '' is not an address; write HOST:PORT, such as 127.0.0.1:8433",
        ),
        (
            "sqs_authentication",
            "off",
            f"sqs_authentication is off (--sqs-no-auth) {NO_SQS}",
        ),
        ("sqs_strict", "on", f"sqs_strict is on {NO_SQS}"),
        (
            "topic_defaults",
            {"min_insync_replicas": "0"},
            "topic_defaults: min_insync_replicas is '0', it must be at least 1",
        ),
        (
            "topic_defaults",
            {"durability": "no"},
            "topic_defaults: durability is 'no', it must be one of fsync, replicated",
        ),
        (
            "topic_defaults",
            {"max_message_bytes": "16MiB"},
            (
                "topic_defaults: max_message_bytes is above 16711680, the maximum of"
                " socket_request_max_bytes"
            ),
        ),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_range(
    name: str, value: object, problem: str
) -> None:
    assert problems_of(**{name: value}) == problem


def test_a_cluster_node_takes_frames_that_hold_a_metadata_entry() -> None:
    peers = "1=a:1,2=b:2,3=c:3"

    said = problems_of(peers=peers, socket_request_max_bytes=8 * MiB)

    assert f"socket_request_max_bytes must be at least {9 * MiB} in a cluster" in said
    flags = {"peers": peers, "socket_request_max_bytes": "9MiB"}
    assert (
        resolve_config(file=None, flags=flags, environment={}).config.socket_request_max_bytes
        == 9 * MiB
    )


def test_all_configuration_problems_are_reported_in_one_line() -> None:
    problems = problems_of(
        node_id=0,
        listen="here",
        max_connections="many",
        color="blue",
        topic_defaults={"retention_ms": "x"},
        advertised="a b",
    )

    for word in ("node_id", "max_connections", "color", "retention_ms", "advertised"):
        assert word in problems
    assert "\n" not in problems


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8433", ("127.0.0.1", 8433)),
        ("broker-1.example.com:1", ("broker-1.example.com", 1)),
        ("localhost", ("localhost", 8433)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("host:65535", ("host", 65535)),
        ("[::1]:9000", ("::1", 9000)),
        ("[::1]", ("::1", 8433)),
        ("::1", ("::1", 8433)),
        ("2001:db8::2", ("2001:db8::2", 8433)),
    ],
)
def test_addresses_are_parsed(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "", ":", ":8433", "host:", "host:x", "host:65536", "host:99999999999", "host:-1",
        "host:\u00b2", "a b:1", "host:1 ", "http://host:1", "[::1", "::1]", "[]:1", "[::1]:x",
        "[host]:1", "a:b:c:d:xyz", "tcp:host:1",
    ],
)  # fmt: skip
def test_invalid_addresses_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an address; write HOST:PORT, such as") as refusal:
        parse_address(text)
    assert parse_address(part_of(str(refusal.value), "such as (.+)")) == ("127.0.0.1", 8433)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("", {}),
        (" , ", {}),
        ("1=a:1", {1: ("a", 1)}),
        ("1=a:1,2=b:2,3=[::1]:3", {1: ("a", 1), 2: ("b", 2), 3: ("::1", 3)}),
        (" 7 = a:1 , 2=b ,", {7: ("a", 1), 2: ("b", 8433)}),
        ("1=a:1,2=a:2", {1: ("a", 1), 2: ("a", 2)}),
        ("2147483647=a:1", {2147483647: ("a", 1)}),
    ],
)
def test_peers_are_parsed(text: str, addresses: dict[int, tuple[str, int]]) -> None:
    assert parse_peers(text) == addresses


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a:1", "'a:1' is no node; write NODE_ID=HOST:PORT, such as 1=10.0.0.1:8433"),
        ("1=a:1;2=b:2", "'a:1;2=b:2' is not an address"),
        ("=a:1", "'=a:1' is no node"),
        ("0=a:1", "'0=a:1' is no node"),
        ("2147483648=a:1", "'2147483648=a:1' is no node"),
        ("-1=a:1", "'-1=a:1' is no node"),
        ("\u00b2=a:1", "is no node"),
        ("1=", "'' is not an address; write HOST:PORT, such as"),
        ("1=a b:1", "'a b:1' is not an address"),
        ("1=a:0", "'1=a:0' has port 0, to which clients cannot connect"),
        ("1=a:1,1=b:1", "node 1 is listed twice"),
        ("1=a:1,2=a:1", "two nodes have the address a:1"),
        ("1=a,2=a:8433", "two nodes have the address a:8433"),
    ],
)
def test_invalid_peers_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_peers(text)

    assert reason in str(refusal.value)
    assert "peers: " + str(refusal.value) == problems_of(peers=text)


def test_a_node_is_listed_in_the_recommended_form() -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_peers("a:1")

    assert parse_peers(part_of(str(refusal.value), "such as (.+)")) == {1: ("10.0.0.1", 8433)}


def test_a_node_must_be_among_its_peers() -> None:
    assert problems_of(node_id=2, peers="1=a:1,3=b:1") == (
        "peers: node 2 itself is missing; add 2=HOST:PORT to the list"
    )
    config = resolve_config(
        file=None,
        environment={"TIDELOG_PEERS": "1=a:1,2=b:2"},
        flags={"node_id": 2, "broker_rack": "rack 7"},
    ).config
    assert config.peer_addresses == {1: ("a", 1), 2: ("b", 2)}
    assert config.broker_rack == "rack 7"


def test_peers_and_rack_are_empty_by_default() -> None:
    config = resolve_config(file=None, environment={}, flags={}).config

    assert config.peer_addresses == {}
    assert config.broker_rack == ""


def test_max_message_bytes_leaves_room_for_the_frame() -> None:
    config = BrokerConfig(socket_request_max_bytes=2 * MiB)

    assert MiB < config.max_message_bytes_limit < 2 * MiB


def test_consumer_group_timings_reach_the_group_config() -> None:
    config = BrokerConfig(
        group_consumer_session_timeout_ms=12_000,
        group_consumer_heartbeat_interval_ms=500,
        group_initial_rebalance_delay_ms=0,
        offsets_retention_ms=3_600_000,
    )

    assert config.groups == GroupConfig(
        session_timeout_ms=12_000,
        heartbeat_interval_ms=500,
        waiting_interval_ms=500,
        initial_rebalance_delay_ms=0,
        offsets_retention_ms=3_600_000,
    )
    assert BrokerConfig().groups == GroupConfig()


def test_a_session_timeout_below_two_heartbeats_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="group_consumer_session_timeout_ms must be at least 15000, twice"
    ):
        BrokerConfig(group_consumer_session_timeout_ms=14_999)
