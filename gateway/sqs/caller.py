"""The caller of an action: its user, account, region and client.

Pure: declarations.
"""

from typing import NamedTuple

from tidelog.client.client import Client
from tidelog.gateway.sqs.names import QueueScope
from tidelog.gateway.sqs.settings import FrontSettings
from tidelog.gateway.sqs.shared import FrontState
from tidelog.wire.batch.record_batch import Headers


class Caller(NamedTuple):
    """What an action knows besides its request. An action is `async def f(caller, request)`."""

    client: Client
    """Client that acts for the user: brokers check the user's grants and quotas."""
    scope: QueueScope
    """Account, region and address: they turn names, URLs and ARNs into queues and back."""
    sender: Headers
    """Header of the messages that this caller sends, with its `SenderId`."""
    settings: FrontSettings
    state: FrontState
    """What actions keep in this process between requests, for one client: caches only."""
