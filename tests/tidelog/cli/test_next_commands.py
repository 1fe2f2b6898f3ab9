"""Errors at a broker name the next command, which works."""

import shlex
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from tests.advice import recommended
from tidelog.cli import main
from tidelog.cli.advice import advice_for
from tidelog.cli.errors import CommandError
from tidelog.wire.errors import (
    ERROR_CLASSES,
    BatchError,
    ConnectionLostError,
    LogTruncatedError,
    NotEnoughReplicasError,
    ReceiptExpiredError,
    RecordTooLargeError,
    TidelogError,
    UnknownTopicError,
)

Printed = pytest.CaptureFixture[str]


class Case(NamedTuple):
    """A command that fails, and its repair."""

    before: tuple[str, ...]
    """Commands that prepare it."""
    wrong: str
    problem: str
    """A part of the error."""
    next: str
    """The command that the error names."""
    again: bool = False
    """Whether the wrong command succeeds after the next one."""


CASES = {
    "record too large": Case(
        ("topic create {n}",),
        "produce {n} --file {large}",
        "0 of 1 records were acknowledged",
        "topic alter {n} --set max_message_bytes=3MiB",
        again=True,
    ),
    "partition full": Case(
        ("topic create {n} --config max_partition_bytes=8KiB --config segment_bytes=4KiB",),
        "produce {n} --file {many}",
        "would exceed this topic's limit of 8192 bytes (max_partition_bytes)",
        "topic alter {n} --reset max_partition_bytes",
        again=True,
    ),
    "unknown topic": Case(
        (), "produce {n} --file {few}", "there is no topic", "topic create {n}", again=True
    ),
    "unknown topic, by option": Case(
        (), "topic describe --topic {n}", "there is no topic", "topic create {n}", again=True
    ),
    "unknown partition": Case(
        ("topic create {n}",),
        "produce {n} --file {few} --partition 7",
        "there is no 7",
        "topic describe {n}",
    ),
    "unknown partition, to read": Case(
        ("topic create {n}",),
        "consume {n} --from beginning --until-end --partition 7",
        "there is no 7",
        "topic describe {n}",
    ),
    "topic exists": Case(
        ("topic create {n}",), "topic create {n}", "there is a topic", "topic describe {n}"
    ),
    "retention gone": Case(
        (
            "topic create {n}",
            "produce {n} --file {few}",
            "topic delete-records {n} --partition 0 --before end",
        ),
        "consume {n} --partition 0 --offset 0 --until-end",
        "offset 0 is not in the log",
        "consume {n} --from-beginning",
    ),
    "unknown group": Case((), "group describe {n}", "there is no group", "group list"),
    "unknown group, to delete": Case(
        (), "group delete {n} --yes", "there is no group", "group list"
    ),
    "unknown queue": Case(
        (), "queue send {n} hello", "there is no queue", "queue create {n}", again=True
    ),
    "queue exists": Case(
        ("queue create {n}",),
        "queue create {n} --config visibility_timeout_ms=5min",
        "there is a queue",
        "queue describe {n}",
    ),
    "invalid receipt": Case(
        ("queue create {n}",),
        "queue delete-message {n} handle",
        "is no receipt handle",
        "queue receive {n}",
    ),
    "max in flight": Case(
        (
            "queue create {n} --config max_in_flight=1",
            "queue send {n} a b",
            "queue receive {n} --max 1",
        ),
        "queue receive {n} --raise-at-limit",
        "its share of max_in_flight (1) is 1",
        "queue in-flight {n}",
    ),
}


def run(line: str | list[str], capsys: Printed) -> tuple[int, str]:
    """Run a line; return its status and its last line of errors."""
    status = main.run(shlex.split(line) if isinstance(line, str) else line)
    return status, (capsys.readouterr().err.splitlines() or [""])[-1]


@pytest.mark.usefixtures("at_broker")
@pytest.mark.parametrize("name", CASES)
def test_an_error_names_the_next_command(name: str, tmp_path: Path, capsys: Printed) -> None:
    case = CASES[name]
    files = {"large": b"x" * 3_000_000, "many": b"y" * 9000 + b"\n", "few": b"a\nb\n"}
    for file, value in files.items():
        (tmp_path / file).write_bytes(value)
    names = {"n": name.replace(" ", "-").replace(",", "")}
    names |= {file: str(tmp_path / file) for file in files}
    for line in case.before:
        assert run(line.format_map(names), capsys)[0] == 0

    status, error = run(case.wrong.format_map(names), capsys)

    assert status == 1
    assert case.problem in error
    following = recommended(error)
    assert following == shlex.split(case.next.format_map(names))
    if following[0] == "consume":
        following.append("--until-end")
    assert run(following, capsys)[0] == 0
    if case.again:
        assert run(case.wrong.format_map(names), capsys)[0] == 0


NAMES = {"topic": "orders", "queue": "jobs", "group": "billing", "partition": 0}


@pytest.mark.parametrize(
    ("error", "names", "advice"),
    [
        (
            NotEnoughReplicasError("1 of 2"),
            {},
            "`tidelog cluster status --partitions` shows missing brokers and replicas",
        ),
        (
            RecordTooLargeError("too large", size_bytes=(5 << 20) + 1, limit_bytes=1),
            NAMES,
            "`tidelog topic alter orders --set max_message_bytes=6MiB` raises the limit",
        ),
        (RecordTooLargeError("too large", size_bytes=65 << 20, limit_bytes=1), NAMES, None),
        (RecordTooLargeError("too large", size_bytes=5, limit_bytes=1), {}, None),
        (
            LogTruncatedError("lost", truncated_to=7, fetch_offset=9),
            NAMES,
            "`tidelog consume orders --partition 0 --offset 7` reads them",
        ),
        (
            BatchError("1 failed", {3: ReceiptExpiredError("late")}),
            NAMES,
            "`tidelog queue in-flight jobs` shows its consumer",
        ),
        (UnknownTopicError("no topic (`tidelog topic create orders`)"), NAMES, None),
        (ConnectionLostError("lost"), NAMES, None),
        (ZeroDivisionError(), NAMES, None),
    ],
)
def test_advice_has_the_names_of_the_command_and_the_numbers_of_the_error(
    error: BaseException, names: dict[str, object], advice: str | None
) -> None:
    assert advice_for(error, names) == advice


def test_the_cause_of_a_failed_command_has_its_advice() -> None:
    failed = CommandError("1 of 2; 0 of 3 records were acknowledged")
    failed.__cause__ = NotEnoughReplicasError("1 of 2")

    assert advice_for(failed, {}) is not None


@pytest.mark.parametrize("cls", ERROR_CLASSES.values(), ids=lambda cls: cls.__name__)
def test_every_command_in_advice_exists(cls: type[TidelogError]) -> None:
    numbers = dict.fromkeys(getattr(cls, "detail_names", ()), 1)
    advice = advice_for(cls("text", **numbers), NAMES)
    if advice is None:
        return

    command: click.Command | None = main.tidelog
    for word in recommended(advice)[:2]:
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(command), word)
            assert command is not None
