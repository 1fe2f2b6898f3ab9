"""Samples of the messages about access keys and gateways."""

from tidelog.wire.messages.access_keys import (
    AccessKeyDescription,
    AccessKeyToCreate,
    AlterAccessKeysReply,
    AlterAccessKeysRequest,
    CreatedAccessKey,
    GetSigningKeyReply,
    GetSigningKeyRequest,
    ImpersonateReply,
    ImpersonateRequest,
    ListAccessKeysReply,
    ListAccessKeysRequest,
)

_BYTES = bytes(range(32))
_ID = "TDLAABCDEFGHIJKLMNOP"
ALTER_ACCESS_KEYS = (
    AlterAccessKeysRequest(
        [AccessKeyToCreate(_ID, "alice", _BYTES, "111122223333", "ci")],
        ["TDLAAAAAAAAAAAAAAAA2"],
        ["TDLAAAAAAAAAAAAAAAA3"],
        ["TDLAAAAAAAAAAAAAAAA4"],
    ),
    AlterAccessKeysReply([CreatedAccessKey(_ID, "a secret")], ["TDLAAAAAAAAAAAAAAAA2"]),
)
LIST_ACCESS_KEYS = (
    ListAccessKeysRequest("alice"),
    ListAccessKeysReply(
        [
            AccessKeyDescription(
                _ID,
                "alice",
                "111122223333",
                1_700_000_000_000,
                is_enabled=True,
                is_usable=True,
                description="ci",
            )
        ]
    ),
)
GET_SIGNING_KEY = (
    GetSigningKeyRequest(_ID, "20260131", "us-east-1", "sqs", b"signed", _BYTES),
    GetSigningKeyReply(is_known=True, signing_key=_BYTES, user="alice", account="111122223333"),
)
IMPERSONATE = (
    ImpersonateRequest(_ID, "20260131", "us-east-1", "sqs", 1_700_000_000_000, _BYTES),
    ImpersonateReply("user:alice", 60_000),
)
