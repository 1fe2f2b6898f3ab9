"""A broker inside a program on a free port, for tests and small tools."""

import tempfile

import trio

import tidelog


async def main() -> None:
    """Start a broker on temporary data, and use it."""
    with tempfile.TemporaryDirectory() as data_dir:
        async with tidelog.open_broker(data_dir) as broker:
            print(f"a broker listens on {broker.address}")
            async with tidelog.connect(broker.address) as client:
                await client.admin.create_topic("events", retention_ms="1h")
                async with client.producer() as producer:
                    await producer.send("events", b"started", headers=[("source", b"example")])
                async with client.consumer("events", auto_offset_reset="earliest") as consumer:
                    async for record in consumer:
                        print(record.offset, record.value, dict(record.headers))
                        break


if __name__ == "__main__":
    trio.run(main)
