"""A chat bot on asyncio: it keeps a channel of IRC in a topic, and reminders in a queue.

    <ada> !remind 90 tea is ready     a message that the queue delivers after 90 seconds
    <ada> !said 3                     the last three lines, read back from the log

Needs a broker: `tidelog serve`. Run it as `python examples/chat_bot.py HOST:PORT CHANNEL`, with the
address of an IRC server without TLS; an address of a broker may follow. Ctrl-C ends it. Reminders
outlive the bot: the next one that runs delivers them.
"""

import asyncio
import sys
from contextlib import suppress

import tidelog.aio as tidelog

LINES, REMINDERS = "example-chat-lines", "example-chat-reminders"
SAID_MAX = 9


class Bot:
    """One connection to a channel."""

    def __init__(
        self,
        client: tidelog.Client,
        producer: tidelog.Producer,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        *,
        channel: str,
    ) -> None:
        """Use an open client, an open producer, and a connection to a server."""
        self._client = client
        self._producer = producer
        self._reminders = client.queue(REMINDERS)
        self._reader, self._writer = streams
        self._channel = channel

    async def run(self) -> None:
        """Join the channel, and answer until the server hangs up."""
        await self._write("NICK tidebot", "USER tidebot 0 * :a bot", f"JOIN {self._channel}")
        async with asyncio.TaskGroup() as tasks:
            worker = self._reminders.worker(self._deliver)
            tasks.create_task(worker.run())
            async for line in self._reader:
                await self._hear(line.decode(errors="replace").strip())
            worker.stop()

    async def _hear(self, line: str) -> None:
        source, _, rest = line.removeprefix(":").partition(" ")
        if source == "PING":
            await self._write(f"PONG {rest}")
        if not rest.startswith(f"PRIVMSG {self._channel} :"):
            return
        nick, text = source.partition("!")[0], rest.partition(" :")[2]
        match text.split(" ", 2):
            case ["!remind", seconds, what] if seconds.isdigit():
                await self._reminders.send(f"{nick}: {what}".encode(), delay=int(seconds))
            case ["!said", count] if count.isdigit():
                for said in await self._last(min(int(count), SAID_MAX)):
                    await self._say(said)
            case _:
                # Returns at once; records of one nick stay in order.
                self._producer.send_nowait(LINES, f"{nick}: {text}".encode(), key=nick.encode())

    async def _last(self, count: int) -> list[str]:
        """Return the last lines of the log."""
        await self._producer.flush()
        async with self._client.consumer(LINES) as consumer:
            ends = await consumer.end_offsets()
            for at, end in ends.items():
                consumer.seek(*at, max(end - count, 0))
            records = [record async for record in consumer.records(ends)]
        records.sort(key=lambda record: record.timestamp_ms)
        return [(record.value or b"").decode() for record in records[-count:]]

    async def _deliver(self, message: tidelog.Message) -> None:
        await self._say(f"reminder for {(message.value or b'').decode()}")

    async def _say(self, text: str) -> None:
        await self._write(f"PRIVMSG {self._channel} :{text}")

    async def _write(self, *lines: str) -> None:
        self._writer.write("".join(f"{line}\r\n" for line in lines).encode())
        await self._writer.drain()


async def main(server: str, channel: str, broker: str) -> None:
    """Run the bot."""
    host, _, port = server.rpartition(":")
    async with tidelog.connect(broker) as client, client.producer() as producer:
        with suppress(tidelog.TopicExistsError):
            await client.admin.create_topic(LINES)
        await client.admin.create_queue(REMINDERS)
        streams = await asyncio.open_connection(host, int(port))
        await Bot(client, producer, streams, channel=channel).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], (*sys.argv[3:], "127.0.0.1:8433")[0]))
