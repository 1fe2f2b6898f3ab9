"""Tests of the examples on asyncio: a web service, a chat bot, a notebook."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import httpx
import trio

import tidelog
from tests.paths import ROOT
from tests.system.integration.processes import DEADLINE_S, environment


class Lines:
    """Lines of text from a stream, and to it if it can be written."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._rest = b""
        self.all: list[str] = []

    async def with_text(self, text: str) -> str:
        """Return the next line that contains a text."""
        with trio.fail_after(DEADLINE_S):
            while True:
                line, separator, rest = self._rest.partition(b"\n")
                if not separator:
                    chunk = await self._stream.receive_some()
                    assert chunk, f"the end, without {text!r}: {self.all}"
                    self._rest += chunk
                    continue
                self._rest = rest
                self.all.append(line.decode().strip())
                if text in self.all[-1]:
                    return self.all[-1]


@asynccontextmanager
async def _running(command: Sequence[str], **variables: str) -> AsyncGenerator[trio.Process, None]:
    """Run a program until the block ends; its errors are on its standard output."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = await trio.lowlevel.open_process(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(PYTHONPATH=paths, **variables),
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def test_a_web_service_produces_in_requests_and_works_beside_them(
    broker_address: str,
) -> None:
    command = ["-m", "uvicorn", "examples.fastapi_service:app", "--port", "0"]
    async with _running(command, BROKER=broker_address) as service:
        assert service.stdout is not None
        output = Lines(service.stdout)
        told = await output.with_text("Uvicorn running on")
        url = "http://" + told.split("http://")[1].split()[0]
        async with httpx.AsyncClient(base_url=url) as http:
            placed = [
                await http.post("/orders", json={"customer": name, "amount": 1})
                for name in ("ada", "grace", "ada")
            ]
            refused = await http.post("/orders", json={"customer": "ada"})
            shipped: list[str] = []
            with trio.fail_after(DEADLINE_S):
                while len(shipped) < len(placed):
                    shipped = (await http.get("/orders/shipped")).json()
        service.send_signal(signal.SIGTERM)
        await output.with_text("Application shutdown complete")
        status = await service.wait()

    assert [each.status_code for each in placed] == [201, 201, 201]
    assert len({each.json()["id"] for each in placed}) == 3
    assert refused.status_code == 422
    assert sorted(shipped) == ["1 for ada", "1 for ada", "1 for grace"]
    assert status in (0, -signal.SIGTERM)
    assert not any("Traceback" in line for line in output.all)


async def test_a_web_service_ends_with_its_worker(broker_address: str) -> None:
    command = ["-m", "uvicorn", "examples.fastapi_service:app", "--port", "0"]
    async with _running(command, BROKER=broker_address) as service:
        assert service.stdout is not None
        output = Lines(service.stdout)
        await output.with_text("Uvicorn running on")
        async with tidelog.connect(broker_address) as client:
            await client.admin.delete_queue("example-orders-of-web")
        await output.with_text("UnknownQueueError")
        with trio.fail_after(DEADLINE_S):
            status = await service.wait()

    assert status in (0, -signal.SIGTERM)


async def test_a_chat_bot_keeps_what_is_said_and_reminds(broker_address: str) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    command = ["examples/chat_bot.py", f"127.0.0.1:{port}", "#tea", broker_address]
    async with listener, _running(command) as bot:
        with trio.fail_after(DEADLINE_S):
            channel = await listener.accept()
        async with channel:
            heard = Lines(channel)

            async def say(nick: str, text: str) -> None:
                await channel.send_all(f":{nick}!~{nick}@host PRIVMSG #tea :{text}\r\n".encode())

            await heard.with_text("JOIN #tea")
            await say("ada", "hello")
            await say("grace", "good day")
            await say("ada", "!said 2")
            said = [await heard.with_text("PRIVMSG") for _ in range(2)]
            began = trio.current_time()
            await say("ada", "!remind 1 tea is ready")
            reminder = await heard.with_text("PRIVMSG")
            waited = trio.current_time() - began
            bot.send_signal(signal.SIGINT)
            status = await bot.wait()

    assert said == ["PRIVMSG #tea :ada: hello", "PRIVMSG #tea :grace: good day"]
    assert reminder == "PRIVMSG #tea :reminder for ada: tea is ready"
    assert 0.9 < waited < math.inf
    assert status == -signal.SIGINT


async def test_the_cells_of_the_notebook_run(broker_address: str) -> None:
    program = f"""
import nbclient, nbformat

notebook = nbformat.read({str(ROOT / "examples" / "notebook.ipynb")!r}, 4)
nbclient.NotebookClient(notebook, timeout=60).execute()
for cell in notebook.cells:
    for output in cell.get("outputs", []):
        print(output["data"]["text/plain"])
"""
    with trio.fail_after(DEADLINE_S):
        result = await trio.run_process(
            [sys.executable, "-c", program],
            capture_stdout=True,
            env=environment(PYTHONPATH=str(ROOT), BROKER=broker_address),
        )

    assert result.stdout.decode().splitlines() == [
        f"['{broker_address}']",
        "[(b'sensor-0', 2000), (b'sensor-1', 2100), (b'sensor-2', 2200)]",
        "5",
    ]
