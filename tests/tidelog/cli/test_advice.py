"""Advice in errors of commands, followed: a test runs the command that the error recommends."""

import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.advice import part_of, recommended
from tests.tidelog.cli.conftest import BrokerThread
from tidelog.blocking.thread import TrioThread
from tidelog.cli import main
from tidelog.client.client import connect

Printed = pytest.CaptureFixture[str]


class Terminal:
    """Runs commands inside of this process."""

    def __init__(self, capsys: Printed) -> None:
        self._capsys = capsys

    def succeeds(self, command: str | list[str]) -> str:
        """Run a command without errors; return its output."""
        assert self._run(command) == 0, f"{command}: {self._capsys.readouterr().err}"
        return self._capsys.readouterr().out

    def fails(self, command: str | list[str], status: int = 1) -> str:
        """Run a command that must fail; return all that it printed."""
        self._capsys.readouterr()
        assert self._run(command) == status
        said = self._capsys.readouterr()
        return said.out + said.err

    def _run(self, command: str | list[str]) -> int:
        return main.run(shlex.split(command) if isinstance(command, str) else command)


@pytest.fixture
def terminal(capsys: Printed) -> Terminal:
    return Terminal(capsys)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Return a file of three lines."""
    file = tmp_path / "lines"
    file.write_bytes(b"a\nb\nc\n")
    return file


@pytest.mark.usefixtures("at_broker")
@pytest.mark.parametrize(
    "command",
    [
        "topic describe missing-1",
        "queue create of-missing-2 --topic missing-2",
        "queue describe missing-3",
        "queue create of-missing-4 --config dead_letter_queue=missing-4",
    ],
)
def test_a_missing_topic_or_queue_is_created_first(command: str, terminal: Terminal) -> None:
    terminal.succeeds(recommended(terminal.fails(command)))

    terminal.succeeds(command)


@pytest.mark.usefixtures("at_broker")
def test_a_queue_creates_its_topic_with_a_number_of_partitions(terminal: Terminal) -> None:
    command = "queue create of-new-topic --topic new-topic"

    assert "or give the number of partitions of a new one" in terminal.fails(command)

    terminal.succeeds(f"{command} --partitions 2")


def test_the_queues_of_a_topic_are_deleted_first(topic: str, terminal: Terminal) -> None:
    for name in ("b", "a"):
        terminal.succeeds(f"queue create {topic}-{name} --topic {topic}")
    delete = f"topic delete {topic} --yes"
    for name in ("a", "b"):
        command = recommended(terminal.fails(delete))
        confirmation = part_of(terminal.fails(command, 2), r"add (--\w+)")

        printed = terminal.succeeds([*command, confirmation])

        assert printed == f"deleted queue {topic}-{name}\n"
    terminal.succeeds(delete)


@pytest.mark.usefixtures("at_broker")
def test_a_dead_letter_queue_is_replaced_before_its_deletion(terminal: Terminal) -> None:
    terminal.succeeds("queue create dead")
    for name in ("second", "first"):
        terminal.succeeds(f"queue create {name} --config dead_letter_queue=dead")
    delete = "queue delete dead --yes"
    for name in ("first", "second"):
        command = recommended(terminal.fails(delete))
        assert name in command

        terminal.succeeds(command)

    terminal.succeeds(delete)


def test_the_journal_of_a_queue_is_described_as_its_queue(queue: str, terminal: Terminal) -> None:
    said = terminal.fails(f"topic describe queue@{queue}")

    assert queue in terminal.succeeds(recommended(said))


def test_a_compacted_topic_gets_no_queue_until_it_only_deletes(
    topic: str, terminal: Terminal
) -> None:
    terminal.succeeds(f"topic alter {topic} --set cleanup_policy=compact")
    said = terminal.fails(f"queue create {topic}-q --topic {topic}")
    assert "leave its cleanup_policy at delete, or put the queues on another topic" in said

    terminal.succeeds(f"queue create {topic}-elsewhere")
    terminal.succeeds(f"topic alter {topic} --set cleanup_policy=delete")
    terminal.succeeds(f"queue create {topic}-q --topic {topic}")


@pytest.mark.usefixtures("at_broker")
def test_a_fifo_queue_with_more_partitions_replaces_one_with_fewer(terminal: Terminal) -> None:
    terminal.succeeds("queue create narrow --fifo")
    said = terminal.fails("topic add-partitions narrow --to 2 --yes")
    assert "create a queue with more partitions, send to it, and drain this one" in said

    terminal.succeeds("queue create wide --fifo --partitions 2")
    terminal.succeeds("queue send wide --group g later")
    assert "later" in terminal.succeeds("queue receive wide")


def test_one_of_two_settings_that_exclude_each_other_is_reset(
    queue: str, terminal: Terminal
) -> None:
    terminal.succeeds(f"queue alter {queue} --set priority_weights=8,1")
    change = f"queue alter {queue} --set fair_delivery=on"
    said = terminal.fails(change)

    assert "has either priority_weights or fair_delivery; reset one of them" in said

    terminal.succeeds(f"{change} --reset priority_weights")


def test_a_setting_of_topics_is_set_for_a_topic(topic: str, terminal: Terminal) -> None:
    said = terminal.fails("cluster alter --set retention_ms=2d")

    values = {"TOPIC": topic, "retention_ms=...": "retention_ms=2d"}
    printed = terminal.succeeds([values.get(word, word) for word in recommended(said)])

    assert ["retention_ms", "2d", "topic"] in [line.split() for line in printed.splitlines()]


@pytest.mark.usefixtures("at_broker")
@pytest.mark.parametrize(
    ("wrong", "pattern"),
    [
        ("min_free_disk_byte", r"did you mean (\w+)\?"),
        ("min_free_disk_bytes@one", r"say (\S+) for node 1"),
    ],
)
def test_a_setting_of_the_cluster_is_set_under_its_recommended_name(
    wrong: str, pattern: str, terminal: Terminal
) -> None:
    name = part_of(terminal.fails(f"cluster alter --set {wrong}=1MiB"), pattern)

    assert f"{name}" in terminal.succeeds(f"cluster alter --set {name}=1MiB")
    terminal.succeeds(f"cluster alter --reset {name}")


USES = [
    ("topic delete-records {t} --partition 0", "--before end"),
    ("topic alter {t}", "--set retention_ms=1d"),
    ("topic alter {t}", "--reset retention_ms"),
    ("cluster elect-leaders --partition 0", "--topic {t}"),
    ("cluster reassign", "--topic {t} --partition 0 --to 1"),
    ("cluster reassign", "--topic {t} --partition 0 --cancel"),
    ("cluster reassign", "--balance"),
    ("cluster reassign --topic {t}", "--partition 0 --to 1"),
    ("cluster reassign --topic {t} --partition 0", "--cancel"),
    ("group reset-offsets g --topic {t}", "--from 0"),
    ("group reset-offsets g --topic {t} --partition 0", "--shift 0"),
    ("serve --json", "--print-config"),
    ("queue purge {t}", "--yes"),
]
"""Commands that lack an option, and the recommended option with a value."""


@pytest.mark.parametrize(("command", "added"), USES)
def test_a_recommended_option_completes_a_command(
    command: str, added: str, topic: str, *, terminal: Terminal
) -> None:
    if "purge" in command or "--shift" in added:  # These need a queue, or a committed offset.
        terminal.succeeds(f"queue create {topic}")
        terminal.succeeds(f"group reset-offsets g --topic {topic} --from end")
    command, added = command.format(t=topic), added.format(t=topic)

    said = terminal.fails(command, 2)

    assert all(word in said for word in added.split() if word.startswith("--")), said
    terminal.succeeds(f"{command} {added}")


CHOICES = [
    (
        "group reset-offsets g --topic {t} --to-earliest",
        "--to-earliest is now --from beginning",
        "group reset-offsets g --topic {t} --from beginning",
    ),
    (
        "topic delete-records {t} --partition 0 --all",
        "--all is now --before end",
        "topic delete-records {t} --partition 0 --before end",
    ),
    (
        "consume {t} --until-end --from 1700000000000",
        "write s@1700000000000 for the time",
        "consume {t} --until-end --from s@1700000000000",
    ),
    (
        "consume {t} --until-end --from-beginning --since 1h",
        "choose one of --from, --from-beginning, --offset, --since and --tail",
        "consume {t} --until-end --since 1h",
    ),
    (
        "consume {t} --until-end --from-beginning --format json --key-separator :",
        "--key-separator needs --format raw",
        "consume {t} --until-end --from-beginning --format raw --key-separator :",
    ),
    (
        "consume {t} --tail 1 --until-end --client-rack a",
        "--read-from nearest and --client-rack NAME go together: give both or none",
        "consume {t} --tail 1 --until-end --client-rack a --read-from nearest",
    ),
    (
        "cluster reassign --topic {t} --partition 0 --to one",
        "write it as 2,3,4",
        "cluster reassign --topic {t} --partition 0 --to 1",
    ),
    (
        "group reset-offsets g --topic {t} --topic {t} --partition 0 --from beginning",
        "give --topic once",
        "group reset-offsets g --topic {t} --partition 0 --from beginning",
    ),
    (
        "cluster events --acknowledge 1 --acknowledge-all",
        "give either --acknowledge ID or --acknowledge-all, not both",
        "cluster events --acknowledge-all",
    ),
    (
        "cluster features --upgrade --downgrade 0",
        "give either --upgrade or --downgrade LEVEL, not both",
        "cluster features",
    ),
    (
        "broker drain 1 --cancel --wait",
        "--cancel excludes --dry-run and --wait: give it alone",
        "broker drain 1 --cancel",
    ),
    (
        "queue create q-{t} --config partitions=2",
        "use the option for it",
        "queue create q-{t} --partitions 2",
    ),
    (
        "produce {t} --file {file} --key-separator ''",
        "give at least one character",
        "produce {t} --file {file} --key-separator a",
    ),
]
"""Commands with options that exclude each other, the advice, and the command that follows it."""


@pytest.mark.parametrize(("command", "advice", "followed"), CHOICES)
def test_a_wrong_use_is_corrected(
    command: str, advice: str, followed: str, *, topic: str, tmp_path: Path, terminal: Terminal
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"a1\na2\n")

    assert advice in terminal.fails(command.format(t=topic, file=file), 2)

    terminal.succeeds(followed.format(t=topic, file=file))


def test_the_offsets_of_a_group_are_reset_instead_of_given(
    topic: str, lines: Path, terminal: Terminal
) -> None:
    terminal.succeeds(f"produce {topic} --file {lines}")
    said = terminal.fails(f"consume {topic} --group g-{topic} --partition 0 --offset 1", 2)

    words = f"g-{topic} --topic {topic} --partition 0 --from 1"
    terminal.succeeds([*recommended(said), *words.split()])

    assert terminal.succeeds(f"consume {topic} --group g-{topic} --until-end") == "b\nc\n"


def test_a_group_without_offsets_is_reset_before_a_shift(topic: str, terminal: Terminal) -> None:
    reset = f"group reset-offsets g-{topic} --topic {topic}"
    said = terminal.fails(f"{reset} --shift 0")
    assert "reset it to an offset, a time, earliest or latest" in said

    terminal.succeeds(f"{reset} --from beginning")
    terminal.succeeds(f"{reset} --shift 0")


@asynccontextmanager
async def member_of(address: str, group: str, topic: str) -> AsyncGenerator[None, None]:
    """Run a member of a group until the block ends."""
    async with (
        connect(address) as client,
        client.consumer(topic, group_id=group, auto_offset_reset="earliest") as consumer,
    ):
        await anext(aiter(consumer))
        yield


def test_the_members_of_a_group_are_stopped_before_its_deletion(
    broker_address: str, topic: str, lines: Path, *, terminal: Terminal
) -> None:
    terminal.succeeds(f"produce {topic} --file {lines}")
    group = f"g-{topic}"
    reset = f"group reset-offsets {group} --topic {topic} --from end"
    thread = TrioThread(member_of(broker_address, group, topic))
    try:
        for command in (reset, f"group delete {group} --yes"):
            assert "stop them first" in terminal.fails(command)
    finally:
        thread.close()

    terminal.succeeds(reset)
    terminal.succeeds(f"group delete {group} --yes")


def test_an_empty_cluster_gets_its_first_topic_and_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    terminal = Terminal(capsys)
    with BrokerThread(tmp_path) as address:
        monkeypatch.setenv("TIDELOG_BROKER", address)
        for kind in ("topic", "queue"):
            terminal.succeeds("cluster status")
            assert main.run([kind, "list"]) == 0
            command = recommended(capsys.readouterr().err)

            terminal.succeeds(["first" if word == "NAME" else word for word in command])

            assert "first" in terminal.succeeds(f"{kind} list")


def test_a_damaged_index_is_recreated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, terminal: Terminal
) -> None:
    data, file = tmp_path / "the data", tmp_path / "lines"
    file.write_bytes(b"x" * 3000)
    with BrokerThread(data) as address:
        monkeypatch.setenv("TIDELOG_BROKER", address)
        terminal.succeeds("topic create orders --config segment_bytes=4KiB")
        for _ in range(3):
            terminal.succeeds(f"produce orders --file {file}")
        said = terminal.fails(["log", "verify", str(data)])
        assert "is in use by process" in said
        assert said.endswith("; stop it\n")
    (index, *others) = sorted(data.glob("topics/orders.*/0/*.index"))
    assert others
    whole = index.read_bytes()
    for command in (["log", "dump", str(index)], ["log", "verify", str(data)]):
        index.write_bytes(b"damaged")

        terminal.succeeds(recommended(terminal.fails(command)))

        assert index.read_bytes() == whole
        terminal.succeeds(command)
    index.unlink()

    terminal.succeeds(recommended(terminal.fails(["log", "verify", str(data)])))

    assert index.read_bytes() == whole
