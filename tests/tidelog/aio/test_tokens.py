"""Credentials of clients for asyncio: a source of tokens is a coroutine of the program's loop."""

import asyncio

from tests.tidelog.aio.programs import Run
from tidelog import aio


def test_a_source_of_tokens_runs_in_the_loop_of_the_program(run: Run, address: str) -> None:
    async def main() -> list[asyncio.AbstractEventLoop]:
        asked: list[asyncio.AbstractEventLoop] = []
        async with aio.connect(address) as admin:
            name = f"user-{id(asked)}"
            await admin.security.create_user(name)

            async def fresh() -> str:
                await asyncio.sleep(0)
                asked.append(asyncio.get_running_loop())
                return await admin.security.create_token(name, expires_in=1.5)

            async with aio.connect(address, token=fresh) as client:
                while len(asked) < 3:
                    await client.admin.list_topics()
                    await asyncio.sleep(0.05)
                assert client.statistics().connections.reconnects == 0
            assert set(asked) == {asyncio.get_running_loop()}
            config = aio.ClientConfig(token=fresh)
            async with aio.connect(address, config=config) as client:
                await client.admin.list_topics()
        return asked

    assert len(run(main())) >= 4
