"""Samples of the messages about users."""

from tidelog.wire.messages.users import (
    AlterUsersReply,
    AlterUsersRequest,
    ListUsersReply,
    ListUsersRequest,
    PasswordHash,
    TokenDescription,
    TokenToSet,
    UserDescription,
    UserToSet,
)

_KEY = bytes(range(32))
ALTER_USERS = (
    AlterUsersRequest(
        [UserToSet("alice", PasswordHash(b"a salt of 16 b.", 600_000, _KEY, _KEY), is_new=True)],
        ["bob"],
        [TokenToSet("0123456789ab", "alice", _KEY, 1_700_000_000_000, "ci")],
        ["ba9876543210"],
    ),
    AlterUsersReply(["bob"]),
)
LIST_USERS = (
    ListUsersRequest("alice"),
    ListUsersReply(
        [UserDescription("alice", has_password=True, token_count=1)],
        [TokenDescription("0123456789ab", "alice", 1_600_000_000_000, 1_700_000_000_000, "ci")],
    ),
)
