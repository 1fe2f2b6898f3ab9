"""What a protocol of SQS is to the front: it decodes requests, and encodes replies and errors.

Pure: declarations.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog.gateway.sqs.http.messages import HttpRequest, HttpResponse
from tidelog.gateway.sqs.protocol import requests
from tidelog.gateway.sqs.protocol.errors import SqsError
from tidelog.gateway.sqs.protocol.replies import SqsReply
from tidelog.gateway.sqs.protocol.requests import SqsCall

CALLS: Final[Mapping[str, type[SqsCall]]] = {
    call.__name__.removesuffix("Call"): call
    for call in vars(requests).values()
    if isinstance(call, type) and issubclass(call, SqsCall) and call is not SqsCall
}
"""Type of the request of each action, by the name of the action."""


class DecodedRequest(NamedTuple):
    """What an HTTP request asks for."""

    action: str
    """Name of the action, such as `SendMessage`: a key of `CALLS`."""
    call: SqsCall


class Codec(ABC):
    """One protocol."""

    @abstractmethod
    def decode(self, request: HttpRequest) -> DecodedRequest:
        """Return what a request asks for.

        Raises:
            SqsError: The action is missing or unknown, or a parameter has the wrong type.

        """

    @abstractmethod
    def encode_reply(self, action: str, reply: SqsReply, request_id: str) -> HttpResponse:
        """Return the response to a request that succeeded."""

    @abstractmethod
    def encode_error(self, error: SqsError, request_id: str) -> HttpResponse:
        """Return the response to a request that failed."""
