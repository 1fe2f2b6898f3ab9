"""The security metadata: what its commands and records add up to."""

import pytest

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.catalog import DeleteTopic
from tidelog.coordinator.metadata.commands import (
    BeginTransaction,
    Command,
    CommitTransaction,
    SetFeatureLevel,
    TransactionAnswer,
)
from tidelog.coordinator.security.access_key_commands import ACCESS_KEYS_MAX
from tidelog.coordinator.security.commands import (
    ChangeGrants,
    CreateAccessKey,
    EnableAccessKey,
    RemoveAccessKey,
    RemoveDataKeys,
    RemoveRole,
    RemoveToken,
    RemoveUser,
    SetDataKey,
    SetQuota,
    SetRole,
    SetToken,
    SetUser,
)
from tidelog.coordinator.security.records import Grant, ScramCredential, SecurityRecord
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.errors import InvalidRequestError, UnknownTopicIdError
from tidelog.wire.messages.features import OWN_LEVELS
from tidelog.wire.messages.transactions import StagedPart, StagedPiece

PASSWORD = ScramCredential(b"salt", 4096, b"stored key", b"server key")
READ = Grant("user:alice", "topic", "orders*", ("read",))
DENY = Grant("role:readers", "topic", "orders-secret", ("read",), is_deny=True)


def secured(level: int = OWN_LEVELS.max_level) -> Cluster:
    """Return a cluster of one broker with a feature level, by default that of all records."""
    cluster = Cluster()
    cluster.supported_levels = OWN_LEVELS
    cluster.start(1)
    cluster.do(SetFeatureLevel(level, [1]))
    return cluster


def state_after(*commands: Command) -> SecurityState:
    """Return the security metadata of a new cluster after some commands."""
    cluster = secured()
    for command in commands:
        cluster.do(command)
    return cluster.state.security


def test_a_user_is_removed_with_all_that_belongs_to_it() -> None:
    security = state_after(
        SetUser("alice", PASSWORD),
        SetUser("bob", None),
        SetToken("1", "alice", bytes(32), None),
        SetToken("2", "bob", bytes(32), None),
        access_key("1"),
        access_key("2", "bob"),
        SetRole("readers", ("alice", "bob")),
        ChangeGrants((READ, DENY)),
        SetQuota("user:alice", {"requests_per_s": 5}),
        RemoveUser("alice"),
    )

    assert list(security.users) == ["bob"]
    assert list(security.tokens) == ["2"]
    assert list(security.access_keys) == ["2"]
    assert security.roles["readers"].members == ("bob",)
    assert list(security.grants) == [DENY]
    assert not security.quotas


def test_a_role_is_removed_with_its_grants() -> None:
    security = state_after(
        SetRole("readers", ("alice",)), ChangeGrants((READ, DENY)), RemoveRole("readers")
    )

    assert not security.roles
    assert list(security.grants) == [READ]


def test_members_of_a_role_are_added_and_removed() -> None:
    security = state_after(
        SetRole("readers", ("carol", "alice")), SetRole("readers", ("bob",), ("carol",))
    )

    assert security.roles["readers"].members == ("alice", "bob")


def test_a_new_user_does_not_replace_another() -> None:
    cluster = secured()
    cluster.do(SetUser("alice", PASSWORD, is_new=True))

    assert cluster.handle(SetUser("alice", PASSWORD, is_new=True)).records == []
    with pytest.raises(InvalidRequestError, match="user alice exists; change its password"):
        cluster.do(SetUser("alice", None, is_new=True))


def test_a_token_needs_its_user_and_is_revoked_once() -> None:
    cluster = secured()
    with pytest.raises(InvalidRequestError, match="user alice does not exist; create it first"):
        cluster.do(SetToken("1", "alice", bytes(32), None))
    cluster.do(SetUser("alice", None))
    cluster.do(SetToken("1", "alice", bytes(32), None))

    assert cluster.handle(SetToken("1", "alice", bytes(32), None)).records == []
    cluster.do(RemoveToken("1"))
    assert cluster.handle(RemoveToken("1")).records == []


def access_key(key_id: str, user: str = "alice", nonce: bytes = bytes(32)) -> CreateAccessKey:
    return CreateAccessKey(key_id, user, "111122223333", nonce, bytes(8), "ci")


def test_an_access_key_needs_its_user_is_disabled_and_removed_once() -> None:
    cluster = secured()
    with pytest.raises(InvalidRequestError, match="user alice does not exist; create it first"):
        cluster.do(access_key("1"))
    cluster.do(SetUser("alice", None))
    cluster.do(access_key("1"))
    assert cluster.handle(access_key("1")).records == []
    for other in (access_key("1", nonce=bytes([1] * 32)), access_key("1", "bob")):
        with pytest.raises(InvalidRequestError, match="access key 1 exists; draw another id"):
            cluster.do(other)

    before = cluster.state.security.version
    for is_enabled in (False, True):
        cluster.do(EnableAccessKey("1", is_enabled))
        assert cluster.state.security.access_keys["1"].is_enabled == is_enabled
        assert cluster.handle(EnableAccessKey("1", is_enabled)).records == []
    assert cluster.state.security.version == before + 2
    restored = SecurityState(cluster.state.security.snapshot())
    assert restored.access_keys == cluster.state.security.access_keys
    cluster.do(RemoveAccessKey("1"))
    assert not cluster.state.security.access_keys
    for gone in (RemoveAccessKey("1"), EnableAccessKey("1", is_enabled=True)):
        assert cluster.handle(gone).records == []


def test_a_user_has_a_limited_number_of_access_keys() -> None:
    cluster = secured()
    cluster.do(SetUser("alice", None))
    cluster.do(SetUser("bob", None))
    for number in range(ACCESS_KEYS_MAX):
        cluster.do(access_key(str(number)))
    with pytest.raises(InvalidRequestError, match="alice has 20 access keys, the limit; remove"):
        cluster.do(access_key("one more"))
    cluster.do(access_key("one of bob", "bob"))


def test_access_keys_need_their_feature_level() -> None:
    cluster = secured(6)
    cluster.do(SetUser("alice", None))
    with pytest.raises(InvalidRequestError, match="feature level 7 is needed"):
        cluster.do(access_key("1"))


def test_quotas_are_changed_by_name() -> None:
    cluster = secured()
    cluster.do(SetQuota("default", {"requests_per_s": 5, "busy_ms_per_s": 100}))
    cluster.do(SetQuota("default", {"requests_per_s": 6}, ("busy_ms_per_s",)))
    assert cluster.state.security.quotas["default"].values == {"requests_per_s": 6}

    cluster.do(SetQuota("default", {}, ("*",)))
    assert not cluster.state.security.quotas


def test_a_data_key_is_wrapped_again_only_from_the_named_master_key() -> None:
    cluster = secured()
    topic_id = cluster.create("orders", [1])
    cluster.do(SetDataKey(topic_id, 1, b"by the first", "first"))
    cluster.do(SetDataKey(topic_id, 1, b"by another", "another"))
    assert cluster.state.security.data_keys(topic_id)[1].wrapped == b"by the first"

    cluster.do(SetDataKey(topic_id, 1, b"by the second", "second", "first"))
    assert cluster.state.security.data_keys(topic_id)[1].wrapped == b"by the second"


def test_only_older_data_keys_are_deleted() -> None:
    cluster = secured()
    topic_id = cluster.create("orders", [1])
    cluster.do(SetDataKey(topic_id, 1, b"wrapped", "master"))
    cluster.do(SetDataKey(topic_id, 2, b"wrapped", "master"))

    with pytest.raises(InvalidRequestError, match="data key 2 is in use; rotate the keys"):
        cluster.do(RemoveDataKeys(topic_id, (1, 2)))
    cluster.do(RemoveDataKeys(topic_id, (1, 7)))
    assert list(cluster.state.security.data_keys(topic_id)) == [2]


def test_a_deleted_topic_loses_its_data_keys() -> None:
    cluster = secured()
    topic_id = cluster.create("orders", [1])
    cluster.do(SetDataKey(topic_id, 1, b"wrapped", "master"))
    before = cluster.state.security.version

    cluster.do(DeleteTopic("orders"))

    assert not cluster.state.security.data_keys(topic_id)
    assert cluster.state.security.version > before


def test_no_data_key_comes_back_after_its_topic_is_deleted() -> None:
    cluster = secured()
    topic_id = cluster.create("orders", [1])
    cluster.do(SetDataKey(topic_id, 1, b"wrapped", "master"))
    cluster.do(DeleteTopic("orders"))

    with pytest.raises(UnknownTopicIdError):
        cluster.do(SetDataKey(topic_id, 1, b"wrapped again", "other", "master"))
    assert not cluster.state.security.data_keys(topic_id)


def test_data_keys_of_committed_staged_records_are_not_deleted() -> None:
    cluster = secured()
    topic_id = cluster.create("orders", [1])
    staging_id = bytes(16)
    begun = BeginTransaction("load", 7, 60_000, ["orders"], [staging_id])
    number = cluster.answer(TransactionAnswer, begun).number
    for key_id in (1, 2):
        cluster.do(SetDataKey(staging_id, key_id, b"wrapped", "master"))
    parts = [StagedPart(topic_id, 0, [StagedPiece(1, 0, 10, 10)])]
    cluster.answer(TransactionAnswer, CommitTransaction("load", 7, number, parts))

    with pytest.raises(InvalidRequestError, match="committed transactions are still being"):
        cluster.do(RemoveDataKeys(staging_id, (1,)))


def test_the_version_rises_with_each_record() -> None:
    cluster = secured()
    cluster.do(SetUser("alice", None))
    cluster.do(ChangeGrants((READ,)))

    records = [each for each in cluster.records if isinstance(each, SecurityRecord)]
    assert cluster.state.security.version == len(records) == 2


def test_the_snapshot_holds_all_security_metadata() -> None:
    cluster = secured()
    topic_id = cluster.create("orders", [1])
    for command in (
        SetUser("alice", PASSWORD),
        SetToken("1", "alice", bytes(32), None),
        SetRole("readers", ("alice",)),
        ChangeGrants((READ, DENY)),
        SetQuota("default", {"requests_per_s": 5}),
        SetDataKey(topic_id, 1, b"wrapped", "master"),
    ):
        cluster.do(command)  # It also compares the snapshots of three replicas.

    security = cluster.state.security
    assert vars(SecurityState(security.snapshot())) == vars(security)


def test_security_records_need_their_feature_level() -> None:
    with pytest.raises(InvalidRequestError, match="feature level 4 is needed"):
        Cluster(1).do(SetUser("alice", None))
