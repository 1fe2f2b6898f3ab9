"""Which protocol a request speaks.

Pure: no clock, no I/O.
"""

from tidelog.gateway.sqs.http.messages import HttpRequest
from tidelog.gateway.sqs.protocol.codec import Codec
from tidelog.gateway.sqs.protocol.json_codec import JSON


def codec_of(request: HttpRequest) -> Codec:
    """Return the protocol of a request: the one that decodes it, and encodes what it answers."""
    _ = request
    return JSON
