"""`tidelog cluster reassign`."""

import json

import pytest

from tidelog.cli import main
from tidelog.cli.cluster.reassign import moves_as_json, print_moves
from tidelog.wire.errors import (
    ErrorCode,
    ErrorDetail,
)
from tidelog.wire.messages.reassignment import PartitionMoved

Printed = pytest.CaptureFixture[str]

MOVING = PartitionMoved("orders", 3, [1, 2], [2, 3], is_under_way=True)
FAILED = PartitionMoved(
    "orders", 4, [1], [], False, ErrorDetail(ErrorCode.INVALID_TOPIC, "there is no broker 9")
)


def test_what_moves_is_shown(capsys: Printed) -> None:
    print_moves([MOVING, FAILED])

    assert capsys.readouterr().out == (
        "TOPIC   PARTITION  FROM  TO\n"
        "orders          3  1,2   2,3  under way\n"
        "orders          4  1          there is no broker 9\n"
    )


def test_programs_get_every_field() -> None:
    (moving, failed) = moves_as_json([MOVING, FAILED])

    assert set(moving) == set(PartitionMoved.__struct_fields__)
    assert (moving["error"], failed["error"]) == (None, "there is no broker 9")


@pytest.mark.usefixtures("at_broker")
def test_a_single_broker_has_no_replica_to_move(capsys: Printed) -> None:
    assert main.run(["cluster", "reassign", "--balance"]) == 0

    assert capsys.readouterr().out == "no replica needs to move\n"


def test_a_partition_stays_where_it_is_to_be(topic: str, capsys: Printed) -> None:
    to = ["--topic", topic, "--partition", "0", "--to", "1"]

    assert main.run(["cluster", "reassign", *to, "--json"]) == 0

    (found,) = json.loads(capsys.readouterr().out)
    assert (found["replicas"], found["is_under_way"]) == ([1], False)


def test_an_unknown_node_is_an_error_of_one_line(topic: str, capsys: Printed) -> None:
    to = ["--topic", topic, "--partition", "0", "--to", "9"]

    assert main.run(["cluster", "reassign", *to]) == 1

    said = capsys.readouterr().err
    assert said.startswith("error: reassignment failed for 1 partition: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--balance", "--drain", "2"],
        ["--topic", "orders"],
        ["--topic", "orders", "--partition", "0"],
        ["--topic", "orders", "--partition", "0", "--to", "1", "--cancel"],
        ["--topic", "orders", "--partition", "0", "--to", "one"],
    ],
)
def test_what_is_not_clear_is_a_wrong_use(options: list[str], capsys: Printed) -> None:
    assert main.run(["cluster", "reassign", *options]) == 2
    assert "node ids" in (said := capsys.readouterr().err) or "give" in said or "use " in said
