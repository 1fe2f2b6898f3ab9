"""The protocol AWS JSON 1.0: the action is in the header `X-Amz-Target`, parameters are the body.

Pure: no clock, no I/O. Source: "Making Query API requests using AWS JSON protocol in Amazon SQS" of
the Amazon SQS Developer Guide, and the Smithy pages "AWS JSON 1.0 protocol" and "AWS Query
compatible trait" (`x-amzn-query-error`).
"""

from typing import Final, final

import msgspec

from tidelog.gateway.sqs.http.messages import HttpRequest, HttpResponse
from tidelog.gateway.sqs.protocol.codec import CALLS, DecodedRequest, SqsCodec, mismatch
from tidelog.gateway.sqs.protocol.errors import SERIALIZATION, UNKNOWN_OPERATION, SqsError
from tidelog.gateway.sqs.protocol.replies import DONE, SqsReply

CONTENT_TYPE: Final = "application/x-amz-json-1.0"
TARGET: Final = b"x-amz-target"
_PREFIX: Final = b"AmazonSQS."
_DECODERS: Final = {
    _PREFIX + action.encode(): (action, msgspec.json.Decoder(call))
    for action, call in CALLS.items()
}
_encode: Final = msgspec.json.Encoder().encode


@final
class JsonCodec(SqsCodec):
    """AWS JSON 1.0."""

    def decode(self, request: HttpRequest) -> DecodedRequest:
        """Return what a request asks for (`SqsCodec.decode`)."""
        known = _DECODERS.get(request.headers.get(TARGET, b""))
        if known is None:
            raise SqsError(UNKNOWN_OPERATION, "")
        action, decoder = known
        try:
            return DecodedRequest(action, decoder.decode(request.body or b"{}"))
        except msgspec.ValidationError as error:
            raise SqsError(SERIALIZATION, mismatch(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SqsError(SERIALIZATION, "") from error  # not JSON, or nested too deeply

    def encode_reply(self, action: str, reply: SqsReply, request_id: str) -> HttpResponse:
        """Return the response to a request that succeeded (`SqsCodec.encode_reply`)."""
        _ = action  # only the query protocol names it
        body = b"" if reply is DONE else _encode(reply)
        return HttpResponse(200, CONTENT_TYPE, body, (("x-amzn-RequestId", request_id),))

    def encode_error(self, error: SqsError, request_id: str) -> HttpResponse:
        """Return the response to a request that failed (`SqsCodec.encode_error`)."""
        shape = error.shape
        body = {"__type": f"{shape.namespace}#{shape.json_name}"}
        if error.message:
            body["message"] = error.message
        fault = "Sender" if shape.is_senders_fault else "Receiver"
        headers = (
            ("x-amzn-RequestId", request_id),
            ("x-amzn-query-error", f"{shape.query_code};{fault}"),
        )
        return HttpResponse(shape.status, CONTENT_TYPE, _encode(body), headers)


JSON: Final = JsonCodec()
