"""`tidelog cluster features`: output, and changes that a cluster of one broker allows."""

import json
import sys

import click
import pytest
import trio
from msgspec.structs import replace

import tidelog
from tests.wire.cluster_samples import FEATURES
from tidelog.cli import main
from tidelog.cli.cluster.view import print_features
from tidelog.client.admin.admin import Admin
from tidelog.wire.messages.features import OWN_LEVELS

Printed = pytest.CaptureFixture[str]
DESCRIBED = FEATURES[1]
READY = replace(DESCRIBED, nodes=DESCRIBED.nodes[:1], obstacles=[])


def wait_for_level(address: str) -> None:
    """Wait until the cluster has its first level."""

    async def wait() -> None:
        async with tidelog.connect(address) as client:
            while (await client.admin.describe_features()).level != OWN_LEVELS.max_level:  # noqa: ASYNC110  (the level is in the cluster)
                await trio.sleep(0.05)

    trio.run(wait)


def test_levels_of_nodes_and_obstacles_are_printed(capsys: Printed) -> None:
    print_features(DESCRIBED)

    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["level", "0"],
        ["newest", "1"],
        [],
        ["NODE", "LEVELS"],
        ["1", "0", "to", "1"],
        ["2", "unknown"],
        [],
        ["the", "level", "cannot", "rise", "to", "1:"],
        ["node", "2", "runs", "a", "version", "without", "feature", "levels;", "upgrade", "it"],
    ]


def test_a_possible_rise_is_said_with_its_command(capsys: Printed) -> None:
    print_features(READY)
    assert "all nodes support the newest level: tidelog cluster features --upgrade\n" in (
        capsys.readouterr().out
    )

    print_features(replace(READY, level=1))
    assert "--upgrade" not in capsys.readouterr().out


def test_the_level_rises_after_a_confirmation(
    broker_address: str, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    asked: list[str] = []
    wanted: list[int] = []

    def confirm(question: str, **_: object) -> None:
        asked.append(question)

    async def describe(_: Admin) -> tidelog.ClusterFeatures:
        return READY

    async def update(_: Admin, level: int) -> tidelog.ClusterFeatures:
        wanted.append(level)
        return replace(READY, level=level)

    monkeypatch.setenv("TIDELOG_BROKER", broker_address)
    monkeypatch.setattr(click, "confirm", confirm)
    monkeypatch.setattr(Admin, "describe_features", describe)
    monkeypatch.setattr(Admin, "update_features", update)

    assert main.run(["cluster", "features", "--upgrade"]) == 2
    assert "confirmation needed" in capsys.readouterr().err
    assert wanted == []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert main.run(["cluster", "features", "--upgrade"]) == 0

    assert asked == ["raise the feature level to 1, so that older versions cannot come back?"]
    assert wanted == [1]


def test_a_level_that_holds_is_shown_as_json_and_does_not_fall(
    broker_address: str, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setenv("TIDELOG_BROKER", broker_address)
    wait_for_level(broker_address)

    for words in ([], ["--upgrade"], ["--downgrade", "7"]):
        assert main.run(["cluster", "features", *words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {
            "level": 7,
            "newest_level": 7,
            "nodes": [{"node_id": 1, "supported": {"min_level": 0, "max_level": 7}}],
            "obstacles": [],
        }
    assert main.run(["cluster", "features", "--downgrade", "8"]) == 1
    assert "the feature level is 7, and 8 is higher; use --upgrade" in capsys.readouterr().err
    assert main.run(["cluster", "features", "--downgrade", "0"]) == 1
    assert capsys.readouterr().err.startswith(
        "error: feature level 0 is not possible: the metadata has records of level 7, which"
    )
