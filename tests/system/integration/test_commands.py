"""Tests of the commands as users run them: pipes, exit statuses, output and errors."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

import tidelog
from tests.paths import ROOT
from tests.system.integration.processes import (
    DEADLINE_S,
    TIDELOG,
    environment,
    only_line,
    run_tidelog,
)

Result = subprocess.CompletedProcess[bytes]


async def run_at(broker_address: str, *arguments: str, stdin: bytes = b"") -> Result:
    return await run_tidelog(*arguments, stdin=stdin, TIDELOG_BROKER=broker_address)


async def run_well(broker_address: str, *arguments: str, stdin: bytes = b"") -> str:
    """Run a command that must succeed without errors; return its output."""
    result = await run_at(broker_address, *arguments, stdin=stdin)
    assert (result.returncode, result.stderr) == (0, b""), result.stderr.decode()
    return result.stdout.decode()


async def create(broker_address: str, topic: str, partitions: int = 1) -> None:
    """Create a topic without a process: half a second of a processor."""
    async with tidelog.connect(broker_address) as client:
        await client.admin.create_topic(topic, partitions)


async def produce(broker_address: str, topic: str, lines: bytes, *, partition: int = 0) -> None:
    """Append a record for each line."""
    async with tidelog.connect(broker_address) as client, client.producer() as producer:
        await producer.send_many(topic, lines.splitlines(), partition=partition)


@asynccontextmanager
async def running(broker_address: str, *arguments: str) -> AsyncGenerator[trio.Process, None]:
    """Run a command and read its output, at most until the block ends."""
    with trio.fail_after(DEADLINE_S):
        process = await trio.lowlevel.open_process(
            [*TIDELOG, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=environment(TIDELOG_BROKER=broker_address),
        )
        try:
            yield process
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()


async def read_lines(stream: trio.abc.ReceiveStream | None, count: int) -> list[bytes]:
    assert stream is not None
    content = b""
    while content.count(b"\n") < count:
        chunk = await stream.receive_some()
        assert chunk, f"the output ended with {content!r}"
        content += bytes(chunk)
    return content.splitlines()


async def test_a_topic_from_its_creation_to_its_deletion(broker_address: str, topic: str) -> None:
    created = await run_well(
        broker_address, "topic", "create", topic, "--partitions", "3", "--config", "retention_ms=1d"
    )
    listed = await run_well(broker_address, "topic", "list")
    await run_well(broker_address, "topic", "alter", topic, "--set", "segment_bytes=1MiB")
    altered = await run_well(
        broker_address, "topic", "alter", topic, "--reset", "retention_ms", "--json"
    )
    described = await run_well(broker_address, "topic", "describe", topic)
    await run_well(broker_address, "topic", "delete", topic, "--yes")
    remaining = await run_well(broker_address, "topic", "list", "--json")

    assert created == f"created topic {topic} with 3 partitions\n"
    assert [topic, "3", "1", "0"] in [line.split()[:4] for line in listed.splitlines()]
    assert json.loads(altered)["config_overrides"] == ["segment_bytes"]
    assert ["segment_bytes", "1MiB", "topic"] in [line.split() for line in described.splitlines()]
    assert topic not in [each["name"] for each in json.loads(remaining)]


async def test_a_queue_from_its_creation_to_its_deletion(broker_address: str, topic: str) -> None:
    await create(broker_address, topic, partitions=2)
    await produce(broker_address, topic, b"a\nb\nc\n", partition=1)

    created = await run_well(
        broker_address, "queue", "create", "q", "--topic", topic, "--from", "end"
    )
    altered = await run_well(
        broker_address, "queue", "alter", "q", "--set", "retry_backoff=1s,1min", "--json"
    )
    refused = await run_at(broker_address, "topic", "delete", topic, "--yes")
    deleted = await run_well(broker_address, "queue", "delete", "q", "--yes")

    assert created == f"created queue q on topic {topic} with 2 partitions\n"
    found = json.loads(altered)
    assert [each["start_offset"] for each in found["partitions"]] == [0, 3]
    assert found["config"]["retry_backoff"] == "1s,1min"
    assert refused.returncode == 1
    assert refused.stderr.decode().startswith(f"error: topic '{topic}' has queues: q; delete")
    assert deleted == "deleted queue q\n"
    assert await run_well(broker_address, "topic", "delete", topic, "--yes")


async def test_lines_are_produced_and_consumed(broker_address: str, topic: str) -> None:
    lines = b"".join(b"key-%d:value %d\n" % (n % 7, n) for n in range(10_000))
    await create(broker_address, topic, partitions=3)

    summary = await run_well(broker_address, "produce", topic, "--key-separator", ":", stdin=lines)
    printed = await run_well(
        broker_address,
        "consume",
        topic,
        "--from",
        "beginning",
        "--until-end",
        "--key-separator",
        ":",
    )

    assert summary.startswith("10,000 records acknowledged in ")
    assert sorted(printed.encode().splitlines()) == sorted(lines.splitlines())


async def test_a_missing_part_of_a_line_is_missing_again_when_consumed(
    broker_address: str, topic: str
) -> None:
    lines = b":no key\nno value:\nsecond:colon: stays\nr\xc3\xa4tsel:\xff\n:the last has no end"
    await create(broker_address, topic)

    await run_well(broker_address, "produce", topic, "--key-separator", ":", stdin=lines)
    result = await run_at(
        broker_address,
        "consume",
        topic,
        "--from",
        "beginning",
        "--until-end",
        "--key-separator",
        ":",
    )

    assert result.stdout == lines + b"\n"


async def test_json_has_every_field_of_a_record(broker_address: str, topic: str) -> None:
    await create(broker_address, topic)
    await run_well(
        broker_address,
        *("produce", topic, "--key-separator", "=", "--headers", "host=web-1,n=2"),
        *("--compression", "zstd", "--acks", "1"),
        stdin=b"k=\xff\xfe\n",
    )

    printed = await run_well(
        broker_address, "consume", topic, "--from", "1h", "--until-end", "--json"
    )

    (line,) = printed.splitlines()
    record = json.loads(line)
    assert record.pop("timestamp_ms") > 0
    assert record == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "key": "k",
        "value": {"base64": "//4="},
        "headers": [{"name": "host", "value": "web-1"}, {"name": "n", "value": "2"}],
    }


async def test_a_copy_by_json_has_the_same_records(broker_address: str, topic: str) -> None:
    copy = f"{topic}-copy"
    async with tidelog.connect(broker_address) as client:
        for name in (topic, copy):
            await client.admin.create_topic(name)
        async with client.producer() as producer:
            for number in range(256):
                key, value = os.urandom(number % 7) or None, os.urandom(number * 3) or None
                await producer.send(topic, value, key=key, headers=[("h", bytes([number]))])

    source, target = (
        shlex.join([*TIDELOG, *words])
        for words in (
            ("consume", topic, "--from", "beginning", "-e", "--json"),
            ("produce", copy, "--format", "json"),
        )
    )
    with trio.fail_after(DEADLINE_S):
        await trio.run_process(
            ["bash", "-c", f"set -o pipefail; {source} | {target}"],
            cwd=ROOT,
            env=environment(TIDELOG_BROKER=broker_address),
            capture_stdout=True,
        )

    async with tidelog.connect(broker_address) as client:
        found: list[list[tuple[object, ...]]] = []
        for name in (topic, copy):
            async with client.consumer(name, auto_offset_reset="earliest") as consumer:
                until = await consumer.end_offsets()
                records = [record async for record in consumer.records(until)]
                found.append([(r.key, r.value, r.headers, r.timestamp_ms) for r in records])
    assert len(found[0]) == 256
    assert found[1] == found[0]


async def test_consume_reads_a_part_of_a_partition(broker_address: str, topic: str) -> None:
    await create(broker_address, topic, partitions=2)
    lines = b"".join(b"%d\n" % n for n in range(100))
    await produce(broker_address, topic, lines, partition=1)

    printed = await run_well(
        broker_address, *("consume", topic, "--partition", "1", "--offset", "40", "--max", "3")
    )

    assert printed == "40\n41\n42\n"


async def test_records_are_deleted_up_to_an_offset(broker_address: str, topic: str) -> None:
    await create(broker_address, topic)
    await produce(broker_address, topic, b"a\nb\nc\n")

    said = await run_well(
        broker_address,
        *("topic", "delete-records", topic, "--partition", "0", "--before", "2"),
    )
    printed = await run_well(broker_address, "consume", topic, "--from", "beginning", "--until-end")
    too_old = await run_at(broker_address, *("consume", topic, "--partition", "0", "--offset", "1"))

    assert said == f"the log start offset of {topic}/0 is 2\n"
    assert printed == "c\n"
    assert too_old.returncode == 1
    assert only_line(too_old).startswith("error: ")


async def test_new_records_are_printed_as_they_arrive_until_ctrl_c(
    broker_address: str, topic: str
) -> None:
    await create(broker_address, topic)
    await produce(broker_address, topic, b"before\n")

    async with running(
        broker_address, "consume", topic, "--offset", "1", "--partition", "0"
    ) as reader:
        await produce(broker_address, topic, b"after\n")
        lines = await read_lines(reader.stdout, 1)
        reader.send_signal(signal.SIGINT)
        status = await reader.wait()
        assert reader.stderr is not None
        said = await reader.stderr.receive_some()

    assert lines == [b"after"]
    assert status == 128 + signal.SIGINT
    assert bytes(said).strip() == b""


async def test_ctrl_c_delivers_the_lines_read_and_prints_their_number(
    broker_address: str, topic: str
) -> None:
    await create(broker_address, topic)

    async with (
        running(broker_address, "consume", topic, "--from", "beginning") as reader,
        running(broker_address, "produce", topic) as writer,
    ):
        assert writer.stdin is not None
        await writer.stdin.send_all(b"first\nsecond\nunfinished")
        await read_lines(reader.stdout, 2)
        writer.send_signal(signal.SIGINT)
        status = await writer.wait()
        said = await read_lines(writer.stderr, 1)

    assert status == 128 + signal.SIGINT
    assert said == [b"interrupted; 2 of 2 records were acknowledged"]


async def test_a_closed_pipe_ends_a_command_quietly(broker_address: str, topic: str) -> None:
    await create(broker_address, topic)
    await produce(broker_address, topic, b"x" * 99 + b"\n" + b"y\n" * 200_000)

    async with running(broker_address, "consume", topic, "--from", "beginning") as reader:
        await read_lines(reader.stdout, 1)
        assert reader.stdout is not None
        await reader.stdout.aclose()
        status = await reader.wait()
        assert reader.stderr is not None
        said = await reader.stderr.receive_some()

    assert status == 128 + signal.SIGPIPE
    assert said == b""


async def test_a_full_disk_behind_the_output_is_an_error(broker_address: str) -> None:
    async with await trio.open_file("/dev/full", "wb") as full:
        result = await trio.run_process(
            [*TIDELOG, "topic", "list", "--json", "--broker", broker_address],
            stdout=full.wrapped,
            capture_stderr=True,
            check=False,
            cwd=ROOT,
            env=environment(),
        )

    assert result.returncode == 1
    assert only_line(result) == "error: No space left on device"


async def test_a_failed_produce_prints_the_acknowledged_count(
    broker_address: str, topic: str
) -> None:
    await create(broker_address, topic)

    result = await run_at(
        broker_address,
        *("produce", topic, "--key-separator", ":", "--json"),
        stdin=b"a:1\nb:2\nc\n",
    )
    printed = await run_well(broker_address, "consume", topic, "--from", "beginning", "--until-end")

    assert result.returncode == 1
    assert only_line(result) == (
        "error: line 3 has no key separator ':'; 2 of 2 records were acknowledged"
    )
    summary = json.loads(result.stdout)
    assert (summary["read"], summary["acknowledged"]) == (2, 2)
    assert printed == "1\n2\n"


async def test_wrong_usage_has_its_own_exit_status() -> None:
    result = await run_tidelog("topic", "create", "orders", "--partitions", "many")

    assert result.returncode == 2
    assert result.stdout == b""
    assert result.stderr.startswith(b"Usage: tidelog topic create ")


async def test_a_missing_broker_is_diagnosed_in_one_line() -> None:
    result = await run_tidelog("topic", "list", "--broker", "127.0.0.1:1")

    assert result.returncode == 1
    assert only_line(result) == (
        "error: cannot connect to 127.0.0.1:1: Connection refused;"
        " nothing listens there; is the broker running (`tidelog serve`)?"
    )


async def test_ctrl_c_sends_the_lines_read_to_a_queue_and_prints_their_number(
    broker_address: str, topic: str
) -> None:
    async with tidelog.connect(broker_address) as client:
        await client.admin.create_queue(topic)

    async with (
        running(broker_address, "consume", topic, "--from", "beginning") as reader,
        running(broker_address, "queue", "send", topic) as writer,
    ):
        assert writer.stdin is not None
        await writer.stdin.send_all(b"first\nsecond\nunfinished")
        await read_lines(reader.stdout, 2)
        writer.send_signal(signal.SIGINT)
        status = await writer.wait()
        said = await read_lines(writer.stderr, 1)

    assert status == 128 + signal.SIGINT
    assert said == [b"interrupted; 2 messages sent"]


async def test_a_closed_output_causes_no_traceback(broker_address: str) -> None:
    with trio.fail_after(DEADLINE_S):
        result: Result = await trio.run_process(
            ["sh", "-c", 'exec "$@" >&-', "sh", *TIDELOG, "queue", "list"],
            capture_stderr=True,
            check=False,
            cwd=ROOT,
            env=environment(TIDELOG_BROKER=broker_address),
        )

    assert (result.returncode, b"Traceback" in result.stderr) == (0, False)
