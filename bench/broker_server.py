"""A broker as a process of its own: `python -m bench.broker_server DIRECTORY [NAME=VALUE ...]`."""

import signal
import sys

import trio

from tidelog.embedded import open_broker


async def main(directory: str, settings: list[str]) -> None:
    """Serve until SIGTERM, then stop cleanly."""
    named = dict(setting.split("=", 1) for setting in settings)
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with open_broker(directory, **named) as broker:
            print(broker.address, flush=True)
            async for _ in signals:
                break


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2:])
