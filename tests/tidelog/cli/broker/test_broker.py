"""`tidelog broker drain`, `replace` and `unregister`."""

import json

import msgspec
import pytest

from tests.wire.cluster_samples import DESCRIBE
from tidelog.cli import main
from tidelog.cli.broker.broker import replicas_that_stay

Printed = pytest.CaptureFixture[str]

CLUSTER = DESCRIBE[1]


def test_replicas_that_are_about_to_leave_do_not_stay() -> None:
    assert CLUSTER.nodes[0].replica_count == 9
    assert CLUSTER.partitions[0].removing_replicas == [1]

    assert replicas_that_stay(CLUSTER, 1) == 8
    assert replicas_that_stay(msgspec.structs.replace(CLUSTER, nodes=[], partitions=[]), 1) == 0


@pytest.mark.usefixtures("at_broker")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["drain", "1"], "broker 1 is the last one that is not drained"),
        (["drain", "9"], "there is no broker 9; there are 1"),
        (["drain", "9", "--cancel"], "there is no broker 9; there are 1"),
        (["replace", "9", "1"], "there is no broker 9; there are 1"),
        (["replace", "1", "1"], "a replacement names one lost broker and another"),
        (["unregister", "1"], "broker 1 is alive at "),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    words: list[str], complaint: str, capsys: Printed
) -> None:
    assert main.run(["broker", *words]) == 1

    said = capsys.readouterr().err
    assert said.startswith(f"error: {complaint}")
    assert said.count("\n") == 1


@pytest.mark.usefixtures("at_broker")
def test_an_unknown_node_is_not_registered(capsys: Printed) -> None:
    assert main.run(["broker", "unregister", "9"]) == 0
    assert capsys.readouterr().out == "node 9 is not registered\n"

    assert main.run(["broker", "unregister", "9", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"node_id": 9, "was_member": False}


@pytest.mark.usefixtures("at_broker")
def test_the_end_of_a_drain_suggests_a_balance(capsys: Printed) -> None:
    assert main.run(["broker", "drain", "1", "--cancel"]) == 0
    assert "node 1 can get replicas again" in capsys.readouterr().out

    assert main.run(["broker", "drain", "1", "--cancel", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"node_id": 1, "is_drained": False}


@pytest.mark.parametrize(
    "words",
    [
        ["drain"],
        ["drain", "none"],
        ["drain", "1", "--cancel", "--wait"],
        ["replace", "1"],
        ["unregister"],
    ],
)
def test_what_is_not_clear_is_a_wrong_use(words: list[str], capsys: Printed) -> None:
    assert main.run(["broker", *words]) == 2
    assert "error: " in capsys.readouterr().err
