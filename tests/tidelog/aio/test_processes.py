"""Programs of asyncio as processes: signals, forks, and ends with an open client."""

import signal
from typing import Final

import pytest

from tests.tidelog.aio.programs import Start

RUN: Final = """
if sys.argv[1] == "asyncio":
    asyncio.run(main())
elif sys.argv[1] == "uvloop":
    uvloop.run(main())
else:
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
"""
"""Runs `main` as the first argument says."""

WAITS: Final = {
    "connecting": """
        import functools, socket

        async def main():
            silent = socket.create_server(("127.0.0.1", 0))
            ready = functools.partial(print, "ready", flush=True)
            asyncio.get_running_loop().call_later(0.1, ready)
            async with aio.connect("{}:{}".format(*silent.getsockname())):
                print("connected")
    """,
    "receiving": """
        async def main():
            async with aio.connect(sys.argv[2]) as client:
                await client.admin.create_queue("receiving-" + sys.argv[1])
                print("ready", flush=True)
                await client.queue("receiving-" + sys.argv[1]).receive(wait=20)
                print("received")
    """,
    "handling": """
        async def handle(message):
            print("ready", flush=True)
            await asyncio.sleep(60)

        async def main():
            async with aio.connect(sys.argv[2]) as client:
                queue = client.queue("handling-" + sys.argv[1])
                await client.admin.create_queue(queue.name)
                await queue.send(b"v")
                await queue.work(handle)
    """,
    "blocking": """
        async def handle(message):
            print("ready", flush=True)
            while not main_task.cancelling():
                time.sleep(0.01)
            print("once more", flush=True)
            time.sleep(60)

        async def main():
            global main_task
            main_task = asyncio.current_task()
            async with aio.connect(sys.argv[2]) as client:
                queue = client.queue("blocking-" + sys.argv[1])
                await client.admin.create_queue(queue.name)
                await queue.send(b"v")
                await queue.work(handle)
    """,
}
"""Programs that wait when they have written `ready`."""


def dedented(code: str) -> str:
    return "\n".join(line.removeprefix(" " * 8) for line in code.split("\n"))


@pytest.mark.parametrize("runner", ["asyncio", "uvloop", "loop"])
def test_ctrl_c_ends_a_program_in_every_phase(address: str, start: Start, runner: str) -> None:
    programs = {name: start(dedented(code) + RUN, runner, address) for name, code in WAITS.items()}

    for name, program in programs.items():
        assert program.wait_line() == "ready", program.ended()
        program.send_signal(signal.SIGINT)
        if name == "blocking" and runner != "loop":
            # The first one cancels the task, as in every program of asyncio.
            assert program.wait_line() == "once more"
            program.send_signal(signal.SIGINT)

    for program in programs.values():
        ended = program.ended()
        assert (ended.status, ended.lines) == (-signal.SIGINT, []), ended.errors
        assert ended.errors.rstrip().endswith("KeyboardInterrupt")
        assert "site-packages/trio" not in ended.errors


@pytest.mark.parametrize("runner", ["asyncio", "uvloop", "loop"])
def test_sigterm_ends_a_program_that_handles_it(address: str, start: Start, runner: str) -> None:
    program = start(
        """
        async def main():
            stopped = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
            async with aio.connect(sys.argv[2]) as client, asyncio.TaskGroup() as tasks:
                queue = client.queue("term-" + sys.argv[1])
                await client.admin.create_queue(queue.name)
                polling = tasks.create_task(queue.receive(wait=20))
                print("ready", flush=True)
                await stopped.wait()
                polling.cancel()
            print("closed")
        """.replace("\n        ", "\n")
        + RUN,
        runner,
        address,
        options=["-X", "dev", "-W", "error"],
    )
    assert program.wait_line() == "ready"
    program.send_signal(signal.SIGTERM)

    assert program.ended() == (0, ["closed"], "")


def test_a_handler_may_end_the_program(address: str, start: Start) -> None:
    code = """
async def handle(message):
    raise SystemExit(5)

async def main():
    async with aio.connect(sys.argv[2]) as client:
        queue = client.queue("exit-" + sys.argv[1])
        await client.admin.create_queue(queue.name)
        await queue.send(b"v")
        await queue.work(handle)
"""
    programs = [
        start(code + RUN, runner, address, options=["-X", "dev"])
        for runner in ("asyncio", "uvloop")
    ]
    for program in programs:
        assert program.ended() == (5, [], "")


def test_a_program_that_ends_with_an_open_client_says_so(address: str, start: Start) -> None:
    code = """
async def main():
    global client
    client = await aio.connect(sys.argv[2])
    producer = await client.producer()
    producer.send_nowait("orders", b"v")
    print("ends")
"""
    program_of = {
        runner: start(code + RUN, runner, address, options=["-X", "dev"])
        for runner in ("asyncio", "uvloop", "loop")
    }
    for program in program_of.values():
        ended = program.ended()
        assert (ended.status, ended.lines) == (0, ["ends"])
        assert ended.errors.count("ResourceWarning: unclosed client") == 1
        assert "abandoned" not in ended.errors
        assert "never" not in ended.errors
        assert "Traceback" not in ended.errors


def test_an_unclosed_client_of_a_thread_or_of_an_open_loop_holds_nothing_up(
    address: str, start: Start
) -> None:
    code = """
import threading

async def main():
    client = await aio.connect(sys.argv[1])
    background.append(asyncio.create_task(client.queue("nope").receive(wait=20)))

def run():
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loops.append(loop)

loops, background = [], []
thread = threading.Thread(target=run)
thread.start()
thread.join()
run()
loops[0].close()
asyncio.run(main())  # Another loop of this thread, whose client is still open.
"""
    ended = start(code, address).ended()
    assert ended.status == 1
    assert ended.errors.rstrip().endswith(
        "close the client of the other event loop first, or use tidelog if this is a program of"
        " trio"
    )

    closed = code.replace("loops[0].close()", "[loop.close() for loop in loops]")
    ended = start(closed, address).ended()
    assert (ended.status, ended.lines) == (0, [])
    assert "Trio" not in ended.errors


def test_a_forked_process_is_told_to_connect_again_and_can(address: str, start: Start) -> None:
    code = """
async def connect_again():
    async with aio.connect(sys.argv[1]) as client:
        print("again", await client.admin.list_topics() is not None, flush=True)

async def in_child(client, producer):
    for call in (
        lambda: client.admin.list_topics(),
        lambda: producer.send("orders", b"v"),
        lambda: producer.send_nowait("orders", b"v"),
    ):
        try:
            await call()
        except RuntimeError as error:
            print("connect again after a fork" in str(error), flush=True)
    await client.close()  # Only the parent has anything to close.

async def main():
    async with aio.connect(sys.argv[1]) as client, client.producer() as producer:
        polling = asyncio.create_task(client.queue("nope").receive(wait=20))
        await client.admin.list_topics()
        child = os.fork()
        if child == 0:
            try:
                await in_child(client, producer)
                asyncio.run(connect_again())
            finally:
                os._exit(3)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        print("child", os.waitstatus_to_exitcode(status))
        await client.admin.list_topics()
        await asyncio.wait([polling])
        print(type(polling.exception()).__name__)

asyncio.run(main())
"""
    ended = start(code, address).ended()

    lines = ["True", "True", "True", "again True", "child 3", "UnknownQueueError"]
    assert (ended.status, ended.lines) == (0, lines)


def test_processes_of_multiprocessing_connect_although_the_parent_is_connected(
    address: str, start: Start
) -> None:
    code = """
import multiprocessing

async def count():
    async with aio.connect(sys.argv[1]) as client:
        return len(await client.admin.list_topics())

def work(_):
    return asyncio.run(count())

async def main():
    async with aio.connect(sys.argv[1]) as client:
        await client.admin.create_topic("forks")
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(min(await asyncio.to_thread(pool.map, work, range(4))) > 0)
        print("forks" in await client.admin.list_topics())

asyncio.run(main())
"""
    ended = start(code, address).ended()

    assert (ended.status, ended.lines) == (0, ["True", "True"]), ended.errors


def test_a_program_in_debug_mode_runs_without_a_warning(address: str, start: Start) -> None:
    """`-X dev` turns on the debug mode of asyncio; every warning is an error."""
    code = """
import gc, logging
logging.basicConfig()

async def main():
    async with aio.connect(sys.argv[2]) as client:
        name = "debug-" + sys.argv[1]
        await client.admin.create_topic(name)
        await client.admin.create_queue(name + "-queue")
        queue = client.queue(name + "-queue")
        asyncio.get_running_loop().slow_callback_duration = 1
        async with client.producer() as producer:
            await asyncio.gather(*(producer.send(name, b"v") for _ in range(100)))
            for _ in range(100):
                producer.send_nowait(name, b"v")
        async with client.consumer(name, auto_offset_reset="earliest") as consumer:
            offsets = [each.offset async for each in consumer.records(await consumer.end_offsets())]

        async def handle(message):
            worker.stop()

        await queue.send(b"v")
        worker = queue.worker(handle)
        await worker.run()
        try:
            async with asyncio.timeout(0.01):
                await queue.receive(wait=20)
        except TimeoutError:
            print(len(offsets))
    gc.collect()
"""
    programs = [
        start(code + RUN, runner, address, options=["-X", "dev", "-W", "error"])
        for runner in ("asyncio", "uvloop")
    ]

    for program in programs:
        assert program.ended() == (0, ["200"], "")
