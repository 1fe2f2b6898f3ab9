"""The broker of a test: its data, crashes and restarts, and what it tells a test."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tidelog.testing
from tidelog import blocking
from tidelog.client.client import connect
from tidelog.testing import EphemeralBroker, ephemeral_broker
from tidelog.wire.errors import (
    AuthenticationRequiredError,
    ConfigError,
    ConnectError,
    UnknownTopicError,
)
from tidelog.wire.messages.queues import MessageState
from tidelog.wire.messages.users import UserDescription

MODULES_MAX = 806
"""Modules that the first broker and its client import: each costs 0.3 ms of the start."""


def test_it_serves_and_removes_its_data() -> None:
    with tidelog.testing.broker() as broker, blocking.connect(broker.address) as client:
        data_dir = Path(broker.data_dir)
        assert (data_dir / "lock").exists()
        assert client.admin.list_topics() == []

    assert not data_dir.exists()
    broker.close()


def test_an_invalid_setting_is_an_error_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ephemeral_broker, "_MEMORY", tmp_path)

    with pytest.raises(ConfigError, match="there is no setting 'flush'"):
        tidelog.testing.broker(flush=1)

    assert list(tmp_path.iterdir()) == []


def test_a_killed_broker_keeps_what_it_has_acknowledged(
    broker: EphemeralBroker, client: blocking.Client
) -> None:
    broker.create_topic("killed")
    address = broker.address
    with client.producer() as producer:
        producer.send("killed", b"before")
        broker.kill()
        assert not (Path(broker.data_dir) / "clean-shutdown").exists()
        with pytest.raises(ConnectError):
            blocking.connect(address)
        producer.send_nowait("killed", b"meanwhile")
        broker.start()
        producer.flush()

    assert broker.address == address
    assert [record.value for record in broker.records("killed")] == [b"before", b"meanwhile"]


def test_a_restart_is_clean_and_starts_what_was_killed(broker: EphemeralBroker) -> None:
    address = broker.address
    broker.create_topic("restarted")

    broker.restart()
    broker.kill()
    broker.restart()

    assert (broker.address, broker.is_running) == (address, True)
    assert broker.records("restarted") == []


def test_records_are_those_of_all_partitions_in_order(
    broker: EphemeralBroker, client: blocking.Client
) -> None:
    broker.create_topic("all", partitions=3)
    with client.producer() as producer:
        for partition in (2, 0, 2):
            producer.send("all", b"%d" % partition, partition=partition)

    found = [(each.partition, each.offset, each.value) for each in broker.records("all")]

    assert found == [(0, 0, b"0"), (2, 0, b"2"), (2, 1, b"2")]
    with pytest.raises(UnknownTopicError):
        broker.records("unknown")


def test_messages_have_their_states(broker: EphemeralBroker, client: blocking.Client) -> None:
    broker.create_queue("states")
    queue = client.queue("states")
    queue.send_batch([b"deleted", b"leased", b"ready"])
    deleted, _leased = queue.receive(2, wait=0)
    deleted.delete()

    found = [(each.record.value, each.state) for each in broker.messages("states")]

    assert found == [(b"leased", MessageState.IN_FLIGHT), (b"ready", MessageState.VISIBLE)]


async def test_a_test_of_trio_uses_all_of_it(broker: EphemeralBroker) -> None:
    broker.create_topic("of-trio")
    async with connect(broker.address) as client, client.producer() as producer:
        await producer.send("of-trio", b"value")
        broker.restart()

        assert [record.value for record in broker.records("of-trio")] == [b"value"]


def test_settings_reach_the_broker() -> None:
    with (
        tidelog.testing.broker(
            http_listen="127.0.0.1:0", topic_defaults={"retention_ms": "1h"}
        ) as broker,
        blocking.connect(broker.address) as client,
    ):
        http_address = broker.http_address
        broker.restart()

        created = client.admin.create_topic("orders")

        assert created.config["retention_ms"] == "1h"
        assert http_address.startswith("127.0.0.1:")
        assert broker.http_address == http_address


def test_data_of_killed_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ephemeral_broker, "_MEMORY", tmp_path)
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    )
    stale = tmp_path / f"tidelog-test-{ended.stdout.strip()}-x"
    used = tmp_path / f"tidelog-test-{os.getpid()}-x"
    for path in (stale, used):
        (path / "topics").mkdir(parents=True)

    with tidelog.testing.broker() as broker:
        assert Path(broker.data_dir).parent == tmp_path

    assert not stale.exists()
    assert used.exists()


def test_a_small_memory_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ephemeral_broker, "_MEMORY_BYTES_MIN", 1 << 60)

    with EphemeralBroker(spare_dir=str(tmp_path)) as broker:
        assert Path(broker.data_dir).parent == tmp_path


def test_a_machine_without_memory_directory_uses_that_of_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ephemeral_broker, "_MEMORY", tmp_path / "none")

    assert ephemeral_broker.memory_directory() is None


def test_events_are_logged_with_their_fields(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"), tidelog.testing.broker() as broker:
        address = broker.address

    (started,) = [each for each in caplog.messages if each.startswith("broker_started")]
    assert f"address={address} " in started


def test_the_first_broker_imports_no_more_than_it_needs() -> None:
    code = (
        "import gc, sys, pytest, tidelog.testing\n"
        "def rounds(): return sum(each['collections'] for each in gc.get_stats())\n"
        "count = len(sys.modules); gc.collect(); before = rounds()\n"
        "tidelog.testing.load_broker_class()\n"
        "assert gc.isenabled() and rounds() == before\n"
        "print(len(sys.modules) - count)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert int(done.stdout) <= MODULES_MAX


def test_an_import_that_fails_leaves_garbage_collection_as_it_was() -> None:
    gc.disable()
    try:
        tidelog.testing.load_broker_class()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_broker_that_requires_authentication_has_an_administrator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDELOG_TOKEN", "tdl_of another cluster")
    with tidelog.testing.broker(authentication="required") as broker:
        broker.create_topic("orders")
        with blocking.connect(broker.address, token=broker.token) as client:
            client.security.create_user("alice", "pencil")
            assert client.admin.list_topics() == ["orders"]
        with blocking.connect(broker.address, user="alice", password="pencil") as client:
            client.admin.list_topics()
        with (
            pytest.raises(AuthenticationRequiredError),
            blocking.connect(broker.address, profile=""),
        ):
            pass
        assert broker.token is not None
        broker.kill()
        broker.start()
        assert [each.name for each in client_users(broker)] == ["admin", "alice"]


def client_users(broker: EphemeralBroker) -> list[UserDescription]:
    with blocking.connect(broker.address, token=broker.token) as client:
        return client.security.list_users()


def test_a_broker_of_a_test_ignores_credentials_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDELOG_TOKEN", "tdl_of another cluster")
    with tidelog.testing.broker() as broker:
        broker.create_topic("orders")
        assert broker.token is None
