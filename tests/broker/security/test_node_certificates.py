"""The certificate of a running broker: reloads, warnings, principals and the description."""

from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from tests.broker.audit.audit_records import audit_records
from tests.broker.security.logins import change
from tests.broker.world import ADDRESS, START_MS, World
from tests.simulation.machine.certified_network import (
    CertifiedNetwork,
    SimulatedCertificate,
    a_certificate,
)
from tidelog.broker.audit.event import AuditKind
from tidelog.coordinator.security.commands import RemoveUser, SetUser
from tidelog.wire.env.env import Stream
from tidelog.wire.errors import (
    AuthenticationExpiredError,
    AuthenticationFailedError,
    AuthenticationRequiredError,
    BrokerError,
    ConfigError,
    ConnectionLostError,
    NotANodeError,
)
from tidelog.wire.messages.certificates import ListCertificatesRequest
from tidelog.wire.messages.cluster import PeerStatusRequest
from tidelog.wire.messages.handshake import ProveNodeRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.security.certificate_name import certified_principal
from tidelog.wire.transport.node_rpc import NodeDialer, UnprovenNodeError
from tidelog.wire.transport.rpc import open_rpc

DAY_MS = 24 * 3_600_000
EXPIRES_MS = START_MS + 40 * DAY_MS
NODE = "tidelog://blue/node/1"
OTHER_NODE = "tidelog://blue/node/2"
ALICE = "tidelog://blue/user/alice"


def a_world(mock_clock: MockClock, uri: str = NODE) -> World:
    """Return a world whose broker has a certificate."""
    world = World(mock_clock)
    world.secure_network = network(world, uri)
    return world


def network(world: World, uri: str, *, expires_at_ms: int = EXPIRES_MS) -> CertifiedNetwork:
    """Return the network of a node or client with a certificate for `uri`."""
    certificate = a_certificate(uri, expires_at_ms=expires_at_ms)
    return CertifiedNetwork(world.network, world.clock, certificate)


def swap(world: World, certificate: SimulatedCertificate) -> None:
    assert isinstance(world.secure_network, CertifiedNetwork)
    world.secure_network.in_files = certificate


async def error_of_metadata(
    certified: CertifiedNetwork,
) -> BrokerError | ConnectionLostError | None:
    """Return why a client with a certificate gets no metadata; `None` if it does."""
    try:
        async with open_rpc(
            certified, *ADDRESS, client_id="test", client_version="0"
        ) as connection:
            await connection.ask(api.METADATA, MetadataRequest(None))
    except (BrokerError, ConnectionLostError) as error:
        return error
    return None


def dialer(world: World, uri: str, *, is_proven_by: str = "blue") -> NodeDialer:
    """Return the dialer of node 2, with a certificate for `uri`."""
    return NodeDialer(
        network(world, uri),
        bytes,
        node_id=2,
        secret=b"another secret than the broker's",
        identify=lambda found: certified_principal(
            found, cluster=is_proven_by, now_ms=world.clock.now_ms()
        ),
    )


async def test_a_user_is_known_by_its_certificate(autojump_clock: MockClock) -> None:
    world = a_world(autojump_clock)
    settings = {"tls": "require", "tls_directory": "x", "authentication": "required"}
    async with world.broker(**settings) as broker:
        await change(broker, SetUser("alice", None))
        assert await error_of_metadata(network(world, ALICE)) is None
        assert isinstance(await error_of_metadata(network(world, "")), AuthenticationRequiredError)


async def test_a_certificate_of_a_user_that_does_not_exist_is_refused(
    autojump_clock: MockClock,
) -> None:
    world = a_world(autojump_clock)
    async with world.broker(tls="require", tls_directory="x"):
        failure = await error_of_metadata(network(world, ALICE))

    assert isinstance(failure, AuthenticationFailedError)
    assert str(failure) == (
        "the certificate of this client is of user:alice, which does not exist; an administrator"
        " runs: tidelog user create alice --no-password"
    )


async def test_a_removed_user_loses_its_connections_and_gets_no_new_ones(
    autojump_clock: MockClock,
) -> None:
    world = a_world(autojump_clock)
    async with world.broker(tls="require", tls_directory="x") as broker:
        await change(broker, SetUser("alice", None))
        async with open_rpc(
            network(world, ALICE), *ADDRESS, client_id="test", client_version="0"
        ) as alice:
            await alice.ask(api.METADATA, MetadataRequest(None))
            await change(broker, RemoveUser("alice"))
            await trio.sleep(1)
            with pytest.raises(ConnectionLostError):
                await alice.ask(api.METADATA, MetadataRequest(None))
        assert isinstance(await error_of_metadata(network(world, ALICE)), AuthenticationFailedError)
        await change(broker, SetUser("alice", None))
        assert await error_of_metadata(network(world, ALICE)) is None


async def test_no_connection_of_a_user_outlives_its_certificate(autojump_clock: MockClock) -> None:
    world = a_world(autojump_clock)
    async with world.broker(tls="require", tls_directory="x") as broker:
        await change(broker, SetUser("alice", None))
        expires_at_ms = world.clock.now_ms() + 60_000
        async with (
            open_rpc(
                network(world, ALICE, expires_at_ms=expires_at_ms),
                *ADDRESS,
                client_id="test",
                client_version="0",
            ) as alice,
            open_rpc(
                network(world, "", expires_at_ms=expires_at_ms),
                *ADDRESS,
                client_id="test",
                client_version="0",
            ) as anonymous,
        ):
            await trio.sleep(59)
            await alice.ask(api.METADATA, MetadataRequest(None))
            await trio.sleep(1.1)
            with pytest.raises(AuthenticationExpiredError):
                await alice.ask(api.METADATA, MetadataRequest(None))
            await trio.sleep(2)
            with pytest.raises(ConnectionLostError):
                await alice.ask(api.METADATA, MetadataRequest(None))
            await anonymous.ask(api.METADATA, MetadataRequest(None))


async def test_the_audit_has_users_that_are_known_by_a_certificate(
    autojump_clock: MockClock,
) -> None:
    world = a_world(autojump_clock)
    settings = {"tls": "require", "tls_directory": "x", "authentication": "required"}
    async with world.broker(audit="on", **settings) as broker:
        await change(broker, SetUser("alice", None))
        await error_of_metadata(network(world, "tidelog://green/user/mallory"))
        async with open_rpc(
            network(world, ALICE), *ADDRESS, client_id="test", client_version="0"
        ) as alice:
            await trio.sleep(62)
            records = await audit_records(alice, AuditKind.AUTHENTICATION)

    assert [(each.principal, each.result, each.detail) for each in records] == [
        ("user:alice", "ok", {"mechanism": "CERTIFICATE"}),
        ("anonymous", "AUTHENTICATION_FAILED", {"mechanism": "CERTIFICATE"}),
    ]


async def test_a_new_cluster_says_why_the_certificate_of_a_node_is_refused(
    autojump_clock: MockClock,
) -> None:
    world = a_world(autojump_clock)
    foreign = a_certificate(OTHER_NODE, expires_at_ms=EXPIRES_MS, authority="another")
    listener = await CertifiedNetwork(world.network, world.clock, foreign).listen("other", 8433)

    async def serve(stream: Stream) -> None:
        with suppress(ConnectionLostError):
            await stream.handshake()
            await stream.wait_readable()  # The other side tells why, and closes.
        stream.close()

    async def be_another_node() -> None:
        async with trio.open_nursery() as nursery:
            while True:
                nursery.start_soon(serve, await listener.accept())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(be_another_node)
        with trio.move_on_after(60):
            peers = "1=broker:8433,2=other:8433"
            async with world.broker(tls="require", tls_directory="x", peers=peers):
                raise AssertionError("there is no other node")
        nursery.cancel_scope.cancel()

    assert "certificate" in str(world.told("waiting_for_cluster")[-1]["reason"])


async def test_a_certificate_of_another_cluster_is_refused(mock_clock: MockClock) -> None:
    world = a_world(mock_clock)
    async with world.broker(tls="require", tls_directory="x"):
        failure = await error_of_metadata(network(world, "tidelog://green/user/alice"))

    assert isinstance(failure, ConnectionLostError)
    (refused,) = world.told("connection_refused")
    assert "is of the cluster 'green', and this one is 'blue'" in str(refused["reason"])


async def test_a_node_proves_itself_by_its_certificate_alone(mock_clock: MockClock) -> None:
    world = a_world(mock_clock)
    async with (
        world.broker(tls="require", tls_directory="x"),
        dialer(world, OTHER_NODE).open(*ADDRESS, name="node 2") as connection,
    ):
        with pytest.raises(NotANodeError, match="prove themselves by certificates"):
            await connection.ask(api.PROVE_NODE, ProveNodeRequest(2, bytes(32)))


async def test_requests_of_a_node_need_a_certificate_of_a_node(mock_clock: MockClock) -> None:
    world = a_world(mock_clock)
    outcomes: dict[str, str] = {}
    async with world.broker(tls="require", tls_directory="x"):
        for uri in (OTHER_NODE, "tidelog://blue/node/3", ALICE, ""):
            async with dialer(world, uri).open(*ADDRESS, name="node 2") as connection:
                try:
                    await connection.ask(api.PEER_STATUS, PeerStatusRequest(2))
                    outcomes[uri] = "served"
                except NotANodeError as error:
                    outcomes[uri] = str(error)

    assert outcomes.pop(OTHER_NODE) == "served"
    assert outcomes.pop("tidelog://blue/node/3") == "node 3 sent a request as node 2"
    assert all("has not proved to be one" in each for each in outcomes.values())


async def test_a_node_does_not_talk_to_a_broker_without_its_certificate(
    mock_clock: MockClock,
) -> None:
    for uri, cluster in ((OTHER_NODE, "blue"), (ALICE, "blue"), (NODE, "green")):
        world = a_world(mock_clock, NODE)
        async with world.broker(tls="require", tls_directory="x"):
            swap(world, a_certificate(uri, expires_at_ms=EXPIRES_MS))
            await world.pass_time(6)
            with pytest.raises(UnprovenNodeError):
                async with dialer(world, OTHER_NODE, is_proven_by=cluster).open(
                    *ADDRESS, name="node 2"
                ):
                    pass


async def test_a_swap_is_reported_and_an_unusable_one_once(mock_clock: MockClock) -> None:
    world = a_world(mock_clock)

    def check(certificate: object) -> None:
        del certificate
        raise ConfigError("it is of another node")

    async with world.broker(tls="require", tls_directory="x"):
        swap(world, a_certificate(NODE, expires_at_ms=EXPIRES_MS, serial="02"))
        await world.pass_time(6)
        assert [each["serial"] for each in world.told("certificate_reloaded")] == ["02"]
        assert isinstance(world.secure_network, CertifiedNetwork)
        world.secure_network.check = check
        swap(world, a_certificate(OTHER_NODE, expires_at_ms=EXPIRES_MS, serial="03"))
        await world.pass_time(20)
        assert [each["reason"] for each in world.told("certificate_not_reloaded")] == [
            "it is of another node"
        ]
        assert world.secure_network.certificate.serial == "02"


async def test_the_end_is_announced_and_connections_outlive_it(mock_clock: MockClock) -> None:
    world = a_world(mock_clock)
    certified = network(world, "", expires_at_ms=START_MS + 400 * DAY_MS)
    settings = {"tls": "require", "tls_directory": "x", "stalled_request_timeout_ms": 3_600_000}
    async with world.broker(**settings):
        async with open_rpc(
            certified, *ADDRESS, client_id="test", client_version="0"
        ) as connection:
            for days in (0, 11, 33, 39.5, 41):
                world.clock.offset_ms = START_MS + int(days * DAY_MS)
                await world.pass_time(6)
            await connection.ask(api.METADATA, MetadataRequest(None))
        assert isinstance(await error_of_metadata(certified), ConnectionLostError)

    told = world.told("certificate_expires")
    assert [each["days_left"] for each in told] == [28, 6, 0, -2]
    assert [each["severity"] for each in told] == ["warning", "warning", "error", "error"]
    assert {each["expires_at_ms"] for each in told} == {EXPIRES_MS}


async def test_a_clock_that_jumps_back_and_forth_ends_no_connection(
    mock_clock: MockClock,
) -> None:
    world = a_world(mock_clock)
    certified = network(world, "")
    async with world.broker(tls="require", tls_directory="x"):
        async with open_rpc(
            certified, *ADDRESS, client_id="test", client_version="0"
        ) as connection:
            for days in (500, -500, 0):
                world.clock.offset_ms = START_MS + days * DAY_MS
                await world.pass_time(6)
                await connection.ask(api.METADATA, MetadataRequest(None))
        assert await error_of_metadata(certified) is None


async def test_half_a_handshake_ends_after_five_seconds(mock_clock: MockClock) -> None:
    world = a_world(mock_clock)
    async with world.broker(tls="require", tls_directory="x"):
        stream = await world.network.connect(*ADDRESS)
        stream.send_nowait([b"\x16\x03"])
        await world.pass_time(0)
        await world.pass_time(4.9)
        assert not world.told("connection_refused")
        await world.pass_time(0.2)
        (refused,) = world.told("connection_refused")
        buffer = memoryview(bytearray(9))
        assert stream.receive_nowait(buffer) == 0

    assert refused["reason"] == "no complete TLS handshake within 5 s"


async def test_a_broker_describes_its_certificate(mock_clock: MockClock) -> None:
    world = a_world(mock_clock)
    async with (
        world.broker(tls="accept", tls_directory="x"),
        open_rpc(network(world, ""), *ADDRESS, client_id="test", client_version="0") as connection,
    ):
        found = await connection.ask(api.LIST_CERTIFICATES, ListCertificatesRequest())

    assert (found.tls, found.name, found.serial) == ("accept", NODE, "01")
    assert found.expires_at_ms == EXPIRES_MS


async def test_a_broker_without_tls_has_none(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as connection:
        found = await connection.ask(api.LIST_CERTIFICATES, ListCertificatesRequest())

    assert (found.tls, found.name, found.expires_at_ms) == ("off", "", 0)
