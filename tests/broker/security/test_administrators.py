"""The first administrator of a cluster, and the recovery after a lock-out, at a broker."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from trio.testing import MockClock

from tests.broker.world import World, config, settle
from tests.cluster_secret import SECRET
from tidelog.broker.partitions.data_directory import RECOVERY_NAME, request_recovery
from tidelog.broker.security.administrators import administrator_command
from tidelog.broker.security.operator_inputs import OperatorInputs
from tidelog.broker.server import Broker, open_broker
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.errors import ConfigError, DataDirectoryError
from tidelog.wire.security.administrator_file import NewAdministrator
from tidelog.wire.security.scram import PasswordKeys
from tidelog.wire.security.token import new_token, parse_token

KEYS = PasswordKeys(b"salt" * 4, 4096, b"stored key" * 3, b"server key" * 3)
ROOT = NewAdministrator("root", keys=KEYS)


@asynccontextmanager
async def broker_with(
    world: World, administrator: NewAdministrator | None = None, **settings: object
) -> AsyncGenerator[Broker]:
    """Run a broker that is to have an administrator."""
    async with open_broker(
        config(**settings),
        world.env,
        world.disk,
        secret=SECRET,
        inputs=OperatorInputs(administrator),
    ) as broker:
        yield broker


def security_of(broker: Broker) -> SecurityState:
    """Return the security metadata of a broker."""
    assert broker._cluster is not None
    return broker._cluster.metadata.state.security


async def test_a_new_cluster_has_its_administrator_when_its_broker_has_started(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with broker_with(world, ROOT) as broker:
        security = security_of(broker)
        assert list(security.users) == ["root"]
        assert security.roles["admin"].members == ("root",)

    names = [event.name for event in world.events]
    assert names.index("administrator_created") < names.index("broker_started")


async def test_a_password_is_stored_as_keys_and_is_in_no_event(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with broker_with(world, NewAdministrator("root", password="a secret")) as broker:
        credential = security_of(broker).users["root"].credential

    assert credential is not None
    assert credential.iterations >= 600_000
    assert "a secret" not in repr(world.events)


async def test_the_first_administrator_may_have_a_token(autojump_clock: MockClock) -> None:
    token = parse_token(new_token(bytes(6), bytes(32)))
    assert token is not None
    world = World(autojump_clock)
    async with broker_with(world, NewAdministrator("root", token=token)) as broker:
        assert security_of(broker).tokens[token.token_id].user == "root"


async def test_a_cluster_with_users_ignores_the_file_with_one_line(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with broker_with(world, ROOT):
        pass
    async with broker_with(world, NewAdministrator("mallory", keys=KEYS)) as broker:
        assert list(security_of(broker).users) == ["root"]

    (ignored,) = world.told("bootstrap_admin_ignored")
    assert ignored["user"] == "mallory"
    assert "the cluster has users" in str(ignored["reason"])


async def test_a_password_that_is_not_legal_ends_the_start(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    with pytest.raises(ConfigError, match="characters that no password may have"):
        async with broker_with(world, NewAdministrator("root", password="a\0b")):
            pass


async def test_a_cluster_without_an_administrator_warns_if_it_needs_one(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with broker_with(world, authorization="enforce"):
        pass
    assert "authorization = enforce" in str(world.told("administrator_missing")[0]["reason"])
    world = World(autojump_clock)
    async with broker_with(world, authentication="required"):
        pass
    assert len(world.told("administrator_missing")) == 1
    async with broker_with(world, ROOT, authentication="required"):
        pass
    assert len(world.told("administrator_missing")) == 1


async def test_a_recovery_is_carried_out_by_the_next_start_and_once(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with broker_with(world, ROOT):
        pass
    command = await administrator_command(world.env, NewAdministrator("alice", keys=KEYS))
    assert request_recovery(world.disk, command) == 1
    async with broker_with(world) as broker:
        await settle()
        assert security_of(broker).roles["admin"].members == ("alice", "root")
        assert not world.disk.exists(RECOVERY_NAME)

    async with broker_with(world):
        await settle()
    recovered = world.told("administrator_recovered")
    assert [each["severity"] for each in recovered] == ["warning", "error"]


async def test_a_directory_of_no_broker_takes_no_recovery(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    command = await administrator_command(world.env, ROOT)

    with pytest.raises(DataDirectoryError, match="is no data directory of a broker"):
        request_recovery(world.disk, command)


async def test_a_damaged_request_for_a_recovery_is_reported_and_the_broker_serves(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with broker_with(world, ROOT):
        pass
    file = world.disk.open(RECOVERY_NAME, create=True)
    file.write_at(0, [b"noise"])
    file.close()
    async with broker_with(world):
        await settle()

    (reported,) = world.told("administrator_not_recovered")
    assert reported["severity"] == "error"
