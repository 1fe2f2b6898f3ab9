"""Fields of messages about access keys, of which secrets are derived line by line."""

import msgspec
import pytest

from tidelog.wire.messages.access_keys import AccessKeyId, Account, ScopePart, SigningDate
from tidelog.wire.messages.users import TokenId

GOOD: list[tuple[object, str]] = [
    (AccessKeyId, "TDLAABCDEFGHIJKLMNOP"),
    (Account, "111122223333"),
    (Account, ""),
    (SigningDate, "20260131"),
    (ScopePart, "us-east-1"),
    (TokenId, "0123456789ab"),
]


@pytest.mark.parametrize(("kind", "text"), GOOD)
def test_no_field_has_a_line_feed_at_its_end(kind: object, text: str) -> None:
    assert msgspec.convert(text, type=kind) == text
    with pytest.raises(msgspec.ValidationError, match="matching regex"):
        msgspec.convert(text + "\n", kind)
