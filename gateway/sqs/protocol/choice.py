"""The choice of a protocol, by the headers of a request.

Pure: no clock, no I/O.
"""

from tidelog.gateway.sqs.http.messages import HttpRequest
from tidelog.gateway.sqs.protocol.codec import SqsCodec
from tidelog.gateway.sqs.protocol.json_codec import JSON, TARGET
from tidelog.gateway.sqs.protocol.query_codec import QUERY


def codec_of(request: HttpRequest) -> SqsCodec:
    """Return the protocol of a request: the one that decodes it, and encodes what it answers."""
    headers = request.headers
    if TARGET in headers or headers.get(b"content-type", b"").startswith(b"application/x-amz-json"):
        return JSON
    return QUERY
