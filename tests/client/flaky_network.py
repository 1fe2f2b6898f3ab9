"""Flaky network between a client and brokers, which a test can break."""

from typing import final

from tests.broker.memory_network import MemoryListener, MemoryNetwork, MemoryStream


@final
class FlakyNetwork:
    """A client's view of a `MemoryNetwork`; see `wire.env.env.Network`."""

    def __init__(self, network: MemoryNetwork) -> None:
        """Connect to `network`."""
        self.network = network
        """Network behind it; a test changes it when brokers are restarted."""
        self.connect_count = 0
        self._streams: list[MemoryStream] = []

    async def listen(self, host: str, port: int) -> MemoryListener:
        """See `wire.env.env.Network`."""
        return await self.network.listen(host, port)

    async def connect(self, host: str, port: int) -> MemoryStream:
        """See `wire.env.env.Network`."""
        self.connect_count += 1
        stream = await self.network.connect(host, port)
        self._streams.append(stream)
        return stream

    def reset_all(self) -> None:
        """Break every connection: data in flight are lost."""
        streams, self._streams = self._streams, []
        for stream in streams:
            stream.reset()

    def silence_all(self) -> None:
        """Drop all replies on existing connections, without an error."""
        for stream in self._streams:
            stream.set_receive_buffer(0)
