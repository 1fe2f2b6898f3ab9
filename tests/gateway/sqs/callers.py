"""A caller of actions for tests: a client of a broker of this process, without HTTP."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import tidelog
from tidelog.client.client import Client
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.message_record import SENDER_HEADER
from tidelog.gateway.sqs.names import QueueScope
from tidelog.gateway.sqs.settings import FrontSettings
from tidelog.gateway.sqs.shared import FrontState

BASE_URL = "http://127.0.0.1:9324"


@asynccontextmanager
async def open_caller(
    data_dir: Path, settings: FrontSettings | None = None
) -> AsyncGenerator[Caller, None]:
    """Start a broker on `data_dir`, and yield a caller of the default account and region."""
    async with (
        tidelog.open_broker(data_dir) as broker,
        tidelog.connect(broker.address) as client,
    ):
        yield caller_of(client, settings)


def caller_of(client: Client, settings: FrontSettings | None = None) -> Caller:
    """Return a caller of the default account and region."""
    settings = settings or FrontSettings()
    scope = QueueScope(
        settings.account, settings.region, settings.account, settings.region, BASE_URL
    )
    return Caller(client, scope, ((SENDER_HEADER, b"AIDATEST"),), settings, FrontState(client))
