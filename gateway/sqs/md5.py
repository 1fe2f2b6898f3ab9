"""MD5 digests that SDKs compare with their own.

Pure: no clock, no I/O. Source: "Calculating the MD5 message digest for message attributes" of the
Amazon SQS Developer Guide.
"""

from hashlib import md5
from typing import Final

from tidelog.gateway.sqs.protocol.requests import MessageAttributes

_STRING: Final = b"\x01"
_BINARY: Final = b"\x02"


def md5_of_body(body: bytes) -> str:
    """Return the digest of a message body in UTF-8, in hexadecimal digits."""
    return md5(body, usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: MessageAttributes) -> str:
    """Return the digest of message attributes, or of message system attributes.

    The digest covers name, type and value of each attribute, in the order of their names, each
    behind its length in four bytes.

    Args:
        attributes: Valid attributes: each has a type, and a value of this type.

    """
    digest = md5(usedforsecurity=False)
    for name in sorted(attributes):
        attribute = attributes[name]
        data_type = (attribute.data_type or "").encode()
        if data_type.startswith(b"Binary"):
            kind, value = _BINARY, attribute.binary_value or b""
        else:
            kind, value = _STRING, (attribute.string_value or "").encode()
        key = name.encode()
        digest.update(
            b"%b%b%b%b%b%b%b"
            % (
                len(key).to_bytes(4),
                key,
                len(data_type).to_bytes(4),
                data_type,
                kind,
                len(value).to_bytes(4),
                value,
            )
        )
    return digest.hexdigest()
