"""The examples of README and of the pages about groups, queues and transactions run.

Their blocks are fragments, so a page gets what its fragments take for granted: a client, names,
topics. A fragment that runs for ever ends when it has done what the test waits for.
"""

import ast
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import CodeType
from typing import Final, final

import trio

import tidelog
from tests.system.docs.page_runner import PORT_COUNT, PageRunner, free_ports
from tests.system.docs.site_pages import blocks_in

PAGES: Final = ("README.md", "docs/groups.md", "docs/queues.md", "docs/transactions.md")
_REMARK: Final = re.compile(r" +# .*$")
_FRONT: Final = re.compile("boto3|AWS_|--sqs-listen")
"""Found in the example of SQS, which has a broker of its own."""
_SERVES: Final = "...\n... serving SQS on http://127.0.0.1:9324"
_ASKS: Final = re.compile(r"tidelog queue (?:purge|seek|delete) ")


def commands_in(page: str) -> Iterator[str]:
    """Yield the commands of the blocks of a page, without the remarks behind them."""
    for block in blocks_in(page):
        if block.language != "sh" or block.is_skipped or block.is_make:
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            command = _REMARK.sub("", line)
            yield f"{command} --yes" if _ASKS.match(command) else command


def python_in(page: str) -> list[str]:
    """Return the fragments in Python, without those for Spark."""
    return [
        block.text
        for block in blocks_in(page)
        if block.language == "python" and not block.is_skipped
    ]


@final
class Examples:
    """A broker, a client, and the names that fragments share."""

    def __init__(self, client: tidelog.Client, runner: PageRunner, folder: Path) -> None:
        self.client = client
        self.printed: list[tuple[object, ...]] = []
        self.names: dict[str, object] = {
            "client": client,
            "trio": trio,
            "print": self._print,
        }
        self._runner = runner
        self._folder = folder
        self._handle = ""

    def _print(self, *values: object) -> None:
        self.printed.append(values)

    async def tell(self, command: str) -> str:
        """Run a command, return its output; `HANDLE` is the last receipt handle."""
        output = await self._runner.script(command.replace("HANDLE", self._handle))
        if command.startswith("tidelog queue receive") and len(output.splitlines()) > 1:
            self._handle = output.split()[-1]
        return output

    async def run(self, text: str, is_done: Callable[[], Awaitable[bool]] | None = None) -> None:
        """Run a fragment to its end, or until `is_done`."""
        text = text.replace("127.0.0.1:8433", self._runner.address)
        text = text.replace("trio.run(main)", "await main()").replace(
            '"scan.tiff"', repr(str(self._folder / "scan.tiff"))
        )
        code = compile(text, "fragment", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        async with trio.open_nursery() as nursery:
            if is_done is not None:
                nursery.start_soon(_cancel_when, is_done, nursery.cancel_scope)
            await _execute(code, self.names)
            nursery.cancel_scope.cancel()

    async def has_no_messages(self, queue: str) -> bool:
        """Return whether all messages of a queue are deleted."""
        counts = await self.client.queue(queue).counts()
        return not any(each.visible or each.in_flight for each in counts)


async def _execute(code: CodeType, names: dict[str, object]) -> None:
    result: object = eval(code, names)  # a coroutine, if the fragment awaits
    if isinstance(result, Awaitable):
        await result


async def _cancel_when(is_done: Callable[[], Awaitable[bool]], scope: trio.CancelScope) -> None:
    while not await is_done():  # noqa: ASYNC110 - the condition is in the cluster
        await trio.sleep(0.05)
    scope.cancel()


@asynccontextmanager
async def examples(tmp_path: Path, place: int, serve: str = "") -> AsyncGenerator[Examples, None]:
    """Run a broker, by the command `serve` if it is given."""
    runner = PageRunner(
        tmp_path / "page", free_ports(50_000 + os.getpid() % 250 * 40 + place * PORT_COUNT)
    )
    try:
        async with AsyncExitStack() as stack:
            if serve:
                await runner.serve(serve, _SERVES if _FRONT.search(serve) else "")
            else:
                broker = tidelog.open_broker(
                    tmp_path / "data", listen=runner.address, group_initial_rebalance_delay_ms=100
                )
                await stack.enter_async_context(broker)
            client = await stack.enter_async_context(tidelog.connect(runner.address))
            yield Examples(client, runner, tmp_path / "page")
    finally:
        with trio.CancelScope(shield=True):
            await runner.stop()


async def test_the_examples_of_the_readme_run(tmp_path: Path) -> None:
    serve, *commands = [line for line in commands_in("README.md") if not _FRONT.search(line)]
    suite, program, embedded, process, worker = [
        text for text in python_in("README.md") if not _FRONT.search(text)
    ]
    streams = [command for command in commands if "tidelog queue" not in command]
    queues = [command for command in commands if "tidelog queue" in command]
    async with examples(tmp_path, 0, serve) as world:

        async def is_empty() -> bool:
            return await world.has_no_messages("billing")

        (tmp_path / "page" / "test_readme.py").write_text(suite, encoding="utf-8")
        await world.tell("pytest --quiet test_readme.py")
        for command in streams:
            await world.tell(command)
        await world.run(program)
        streamed = len(world.printed)
        world.names["tidelog"] = tidelog
        await world.client.admin.create_topic("invoices")

        async def is_invoiced() -> bool:
            (topic,) = await world.client.admin.describe_topics(["invoices"])
            return bool(topic.partitions[0].high_watermark)

        await world.run(process, is_invoiced)
        for command in queues:
            await world.tell(command)
        await world.run(worker, is_empty)
        await world.run(embedded.replace('"data"', repr(str(tmp_path / "embedded"))))

    assert {values[-1] for values in world.printed[1:streamed]} >= {b"sent"}
    assert len(world.printed) == streamed + 4


async def test_a_program_of_sqs_in_the_readme_runs(tmp_path: Path) -> None:
    serve, *commands = [line for line in commands_in("README.md") if _FRONT.search(line)]
    (program,) = [text for text in python_in("README.md") if _FRONT.search(text)]
    async with examples(tmp_path, 4, serve) as world:
        (tmp_path / "page" / "program.py").write_text(program, encoding="utf-8")
        printed = await world.tell("; ".join([*commands, "python program.py"]))

    assert "'Body': 'hello'" in printed


async def test_the_example_of_a_member_of_a_group_runs(tmp_path: Path) -> None:
    charged: list[bytes | None] = []

    async def charge(record: tidelog.Record) -> None:
        await trio.lowlevel.checkpoint()
        charged.append(record.value)

    async def has_charged() -> bool:
        return len(charged) == 3

    async with examples(tmp_path, 1) as world:
        await world.client.admin.create_topic("orders")
        async with world.client.producer() as producer:
            await producer.send_many("orders", [b"1", b"2", b"3"])
        world.names["charge"] = charge
        loop, settings = python_in("docs/groups.md")
        await world.run(loop, has_charged)
        await world.run(settings)
        described = await world.client.admin.describe_group("billing")

    assert charged == [b"1", b"2", b"3"]
    assert described.config["alert_lag_ms"] == "300000ms"


async def test_the_example_of_a_transaction_runs(tmp_path: Path) -> None:
    async with examples(tmp_path, 2) as world:
        await world.client.admin.create_topic("orders")
        world.names.update(values=[b"1", b"2"], keys=[b"ann", b"bob"])
        (fragment,) = python_in("docs/transactions.md")
        await world.run(fragment)
        (topic,) = await world.client.admin.describe_topics(["orders"])

    assert topic.partitions[0].high_watermark == 3


async def test_the_examples_of_queues_run(tmp_path: Path) -> None:
    page = "docs/queues.md"
    async with examples(tmp_path, 3) as world:
        admin = world.client.admin
        (tmp_path / "page" / "scan.tiff").write_bytes(bytes(3_000_000))
        for topic in ("orders", "repaired"):
            await admin.create_topic(topic)
        for name in ("scans", "payments-dead"):
            await admin.create_queue(name)
        await admin.create_queue("transfers", fifo=True)
        delayed = ""
        for command in commands_in(page):
            if "cancel-scheduled" in command:
                receipt = await world.client.queue("payments").send(b"later", delay=3600)
                delayed = receipt.message_id
            await world.tell(re.sub(r"\b\d-17\b", delayed, command))

        async def is_empty() -> bool:
            return await world.has_no_messages("payments")

        names = {"FIFO": "transfers", "group=": "transfers", "scan.tiff": "scans"}
        world.names["dead"] = world.client.queue("payments-dead")
        for fragment in python_in(page):
            name = next((queue for word, queue in names.items() if word in fragment), "payments")
            world.names["queue"] = world.client.queue(name)
            await world.run(fragment, None if "create_queue" in fragment else is_empty)
