"""TLS on real brokers: a cluster changes over under load, reloads, users, workers and faces."""

import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

import tidelog
import tidelog.blocking
from tests.certificates import Authority, copy
from tests.system.integration.nodes import Nodes
from tests.system.integration.processes import BrokerProcess, only_line, run_tidelog, serving
from tests.system.integration.test_workers import COUNT, free_ports, started
from tidelog.client.config import ClientConfig
from tidelog.spark_connector.connection.broker_connection import BrokerConnection
from tidelog.spark_connector.options import CONNECTION_NAMES, ConnectionOptions, GivenOptions
from tidelog.wire.errors import ConnectError, TopicExistsError
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Return a CA whose directories are in `tls`."""
    return Authority(tmp_path / "tls")


class Producing:
    """A producer that sends numbers one after the other, until told otherwise."""

    def __init__(self) -> None:
        self.sent_count = 0
        self._is_done = False

    async def run(self, client: tidelog.Client) -> None:
        async with client.producer() as producer:
            while not self._is_done:
                await producer.send("orders", b"%d" % self.sent_count)
                self.sent_count += 1

    async def more(self, count: int = 20) -> None:
        """Wait until so many more are acknowledged."""
        wanted = self.sent_count + count
        while self.sent_count < wanted:  # noqa: ASYNC110  (the count is the condition)
            await trio.sleep(0.01)

    def end(self) -> None:
        self._is_done = True


@asynccontextmanager
async def producing(addresses: str, **settings: str) -> AsyncGenerator[Producing, None]:
    """Produce through the block, and fail if a record fails."""
    numbers = Producing()
    async with (
        tidelog.connect(addresses, config=ClientConfig(**settings)) as client,  # type: ignore[arg-type]
        trio.open_nursery() as nursery,
    ):
        with suppress(TopicExistsError):
            await client.admin.create_topic("orders", 3)
        nursery.start_soon(numbers.run, client)
        await numbers.more(1)
        yield numbers
        await numbers.more()
        numbers.end()


async def restart_all(nodes: Nodes, mode: str, directory: Path, *, during: Producing) -> None:
    """Restart the brokers one after the other, with another setting of `tls`."""
    nodes.options = ("--tls", str(directory), "--config", str(config_of(directory, mode)))
    for node_id in nodes.ids:
        await nodes.stop_and_wait(node_id)
        await nodes.start(node_id)
        await during.more()


def config_of(directory: Path, mode: str) -> Path:
    path = directory / f"{mode}.toml"
    path.write_text(f'tls = "{mode}"\n')
    return path


async def test_a_plain_cluster_changes_over_in_two_rolling_restarts_under_load(
    tmp_path: Path, authority: Authority
) -> None:
    for node_id in Nodes.ids:
        authority.issue(f"node:{node_id}")
    ca = str(authority.directory / "node-1" / "ca.pem")

    async with trio.open_nursery() as nursery:
        nodes = Nodes(tmp_path, nursery)
        await nodes.start(*nodes.ids)
        async with producing(nodes.addresses) as plain:
            await restart_all(nodes, "accept", authority.directory, during=plain)
            async with producing(nodes.addresses, tls_ca=ca) as secured:
                await plain.more()
                await secured.more()
        async with producing(nodes.addresses, tls_ca=ca) as secured:
            await restart_all(nodes, "require", authority.directory, during=secured)
        async with tidelog.connect(nodes.addresses, tls_ca=ca) as client:
            found = await client.admin.describe_cluster()
            assert {node.status for node in found.nodes} == {"alive"}
        refused = await run_tidelog("-b", nodes.addresses, "topic", "list")
        for node_id in nodes.ids:
            assert "PROVE_NODE" not in str(nodes.process(node_id).events)
        nursery.cancel_scope.cancel()

    line = only_line(refused)
    assert "a TLS server; set tls_ca" in line
    assert "another service" not in line
    assert "\\x15" not in line


async def test_a_certificate_is_replaced_under_load_and_an_expired_one_ends_nothing(
    tmp_path: Path, authority: Authority
) -> None:
    files = authority.issue("node:1", days_old=10, days=11)
    old = authority.issue("node:1", days_old=30, days=10, directory="old")
    new = authority.issue("node:1", directory="new")
    tls = str(authority.directory / "node-1")

    async with (
        serving(tmp_path / "data", "--tls", tls, TIDELOG_MAINTENANCE_INTERVAL_MS="10") as broker,
        producing(broker.address, tls_ca=files.authorities) as numbers,
    ):
        soon = await broker.wait_event("certificate_expires")
        for each in (old, new):
            copy(each.key, files.key)
            copy(each.certificate, files.certificate)
            wanted = "certificate_not_reloaded" if each is old else "certificate_reloaded"
            await broker.wait_event(wanted)
            await numbers.more()
        async with producing(broker.address, tls_ca=files.authorities):
            pass

    assert soon["days_left"] <= 1
    reasons = [each["reason"] for each in broker.events if "not_reloaded" in each["event"]]
    assert any("has expired" in each for each in reasons)


def reload_count(workers: BrokerProcess) -> int:
    return sum(each["event"] == "certificate_reloaded" for each in workers.events)


async def test_sighup_looks_for_a_new_certificate(tmp_path: Path, authority: Authority) -> None:
    files = authority.issue("node:1")
    new = authority.issue("node:1", directory="new")

    async with serving(
        tmp_path / "data", "--tls", str(authority.directory), TIDELOG_MAINTENANCE_INTERVAL_MS="1h"
    ) as broker:
        authority.replace(files, new)
        broker.signal(signal.SIGHUP)
        event = await broker.wait_event("certificate_reloaded")
        async with tidelog.connect(broker.address, tls_ca=files.authorities) as client:
            assert await client.admin.describe_topics() == []

    assert event["subject"] == "node:1"


async def test_the_certificate_of_another_node_is_refused_at_the_start(
    tmp_path: Path, authority: Authority
) -> None:
    authority.issue("node:2")

    result = await run_tidelog(
        *("serve", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"),
        *("--tls", str(authority.directory / "node-2")),
    )

    assert result.returncode == 1
    assert "the certificate in tls_directory is of node:2, and this is node 1" in only_line(result)


async def test_workers_with_tls_form_one_cluster_and_renew_at_sighup(
    tmp_path: Path, authority: Authority
) -> None:
    own = [authority.issue(f"node:{node_id}") for node_id in range(1, COUNT + 1)]
    listen = f"127.0.0.1:{free_ports(COUNT)}"
    ca = str(authority.directory / "node-1" / "ca.pem")

    async with serving(
        tmp_path / "data",
        *("--workers", str(COUNT), "--tls", str(authority.directory)),
        listen=listen,
        TIDELOG_MAINTENANCE_INTERVAL_MS="1h",
    ) as workers:
        await workers.wait_until(lambda: len(started(workers)) == COUNT)
        async with tidelog.connect(listen, tls_ca=ca) as client:
            found = await client.admin.describe_cluster()
        for node_id, files in enumerate(own, 1):
            authority.replace(files, authority.issue(f"node:{node_id}", directory=f"new-{node_id}"))
        workers.signal(signal.SIGHUP)
        await workers.wait_until(lambda: reload_count(workers) == COUNT)
        workers.signal(signal.SIGTERM)  # A kill would leave the workers behind.
        assert await workers.wait_ended() == 0

    assert {node.status for node in found.nodes} == {"alive"}
    assert {node.rack for node in found.nodes} == {socket.gethostname()}


async def test_commands_and_blocking_clients_speak_tls_with_a_certificate_of_a_user(
    tmp_path: Path, authority: Authority
) -> None:
    files = authority.issue("node:1")
    alice = authority.issue("user:alice")
    assert alice.certificate is not None
    assert alice.key is not None
    options = ("--tls-ca", alice.authorities, "--tls-certificate", alice.certificate)
    first = tmp_path / "first.toml"
    first.write_text('user = "alice"\npassword = "not used here"\n', encoding="utf-8")
    first.chmod(0o600)

    async with serving(
        tmp_path / "data",
        *("--tls", str(authority.directory)),
        *("--bootstrap-admin", str(first)),
        TIDELOG_AUTHENTICATION="required",
    ) as broker:

        def ask() -> None:
            with tidelog.blocking.connect(
                broker.address,
                tls_ca=alice.authorities,
                tls_certificate=alice.certificate,
                tls_key=alice.key,
            ) as client:
                client.admin.create_topic("orders")

        await trio.to_thread.run_sync(ask)
        named = await run_tidelog(
            *("-b", broker.address, "topic", "list", "--names", *options, "--tls-key", alice.key)
        )
        unknown = await run_tidelog(
            *("-b", broker.address, "topic", "list"), TIDELOG_TLS_CA=files.authorities
        )

    assert named.stdout == b"orders\n"
    assert "authenticated clients only" in only_line(unknown)


async def test_the_connector_of_spark_speaks_tls_or_says_why_not(
    tmp_path: Path, authority: Authority
) -> None:
    files = authority.issue("node:1")
    other = Authority(tmp_path / "other").issue("node:1")

    async with serving(tmp_path / "data", "--tls", str(authority.directory)) as broker:

        def connect(**options: str) -> int:
            given = GivenOptions({"bootstrap.servers": broker.address, **options}, CONNECTION_NAMES)
            parsed = ConnectionOptions.parse(given)
            connection = BrokerConnection(parsed.addresses[0], parsed)
            try:
                connection.call(api.METADATA, MetadataRequest(None), timeout_s=10)
                return connection.hello.node_id
            finally:
                connection.close()

        settings = {"client.tls.ca": files.authorities}
        assert await trio.to_thread.run_sync(lambda: connect(**settings)) == 1
        settings["client.tls.ca"] = other.authorities
        with pytest.raises(ConnectError, match="is not signed by a CA in tls_ca"):
            await trio.to_thread.run_sync(lambda: connect(**settings))
        with pytest.raises(ConnectError, match="a TLS server; set tls_ca to"):
            await trio.to_thread.run_sync(connect)
