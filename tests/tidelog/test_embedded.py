"""A broker inside this process."""

import os
from pathlib import Path

import pytest

from tests.cluster_secret import SECRET
from tidelog.broker.config.broker_config import resolve_config
from tidelog.client.client import connect
from tidelog.embedded import open_broker, open_configured_broker
from tidelog.wire.errors import ConfigError, DataDirectoryError


async def test_it_serves_while_the_block_runs_and_keeps_its_data(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as broker, connect(broker.address) as client:
        await client.admin.create_topic("orders")
    async with open_broker(os.fspath(tmp_path)) as broker, connect(broker.address) as client:
        topics = await client.admin.list_topics()

    assert topics == ["orders"]


async def test_it_stops_cleanly(tmp_path: Path) -> None:
    async with open_broker(tmp_path):
        was_marked_before = (tmp_path / "clean-shutdown").exists()

    assert not was_marked_before
    assert (tmp_path / "clean-shutdown").exists()


async def test_two_take_ports_of_their_own(tmp_path: Path) -> None:
    async with open_broker(tmp_path / "a") as first, open_broker(tmp_path / "b") as second:
        assert first.address != second.address


async def test_settings_are_those_of_the_configuration(tmp_path: Path) -> None:
    async with (
        open_broker(tmp_path, topic_defaults={"retention_ms": "1h"}) as broker,
        connect(broker.address) as client,
    ):
        created = await client.admin.create_topic("orders")

    assert created.config["retention_ms"] == "1h"


async def test_the_environment_does_not_reach_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_NODE_ID", "nonsense")

    async with open_broker(tmp_path) as broker:
        assert broker.address.startswith("127.0.0.1:")


async def test_an_invalid_setting_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no setting 'flush'"):
        async with open_broker(tmp_path, flush=1):
            pass


async def test_a_data_directory_in_use_is_an_error(tmp_path: Path) -> None:
    async with open_broker(tmp_path):
        with pytest.raises(DataDirectoryError, match="is in use by process"):
            async with open_broker(tmp_path):
                pass


async def test_a_whole_configuration_can_be_given(tmp_path: Path) -> None:
    flags = {"data_dir": str(tmp_path), "listen": "127.0.0.1:0"}
    resolved = resolve_config(file=None, environment={}, flags=flags)

    async with open_configured_broker(resolved, secret=SECRET) as broker:
        assert not broker.address.endswith(":0")
