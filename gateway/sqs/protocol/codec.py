"""The interface of a protocol: it decodes requests, and encodes replies and errors.

Pure: declarations.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

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

_MISMATCH: Final = re.compile(r"Expected `(?P<wanted>[^`]+)`, got `(?P<got>[^`]+)`")
_WANTED: Final = {"int": "an Integer", "str": "a String", "bytes": "a Blob"}
_GIVEN: Final = {"int": "NUMBER_VALUE", "float": "DECIMAL_VALUE", "bool": "TRUE_VALUE"}
_STARTS: Final = {
    "object": "Start of structure or map found where not expected.",
    "array": "Start of list found where not expected",
}


class DecodedRequest(NamedTuple):
    """What an HTTP request asks for."""

    action: str
    """Name of the action, such as `SendMessage`: a key of `CALLS`."""
    call: SqsCall


class SqsCodec(ABC):
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


def mismatch(error: msgspec.ValidationError) -> str:
    """Return the vendor's text for a parameter of a wrong type, from that of msgspec."""
    text = str(error)
    found = _MISMATCH.search(text)
    if found is None:
        return text
    if found["got"] in _STARTS:
        return _STARTS[found["got"]]
    given = _GIVEN.get(found["got"], "STRING_VALUE")
    for name, wanted in _WANTED.items():
        if found["wanted"].startswith(name):
            return f"{given} can not be converted to {wanted}"
    return "Unexpected field type"
