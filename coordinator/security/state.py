"""The security metadata of a cluster: the state that its records add up to.

Pure: no clock, no I/O. `apply` and `topic_deleted` are the only changes; everything else reads.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import final

from tidelog.coordinator.security.access import AccessTable
from tidelog.coordinator.security.records import (
    AccessKeyRemoved,
    AccessKeySet,
    DataKeySet,
    DataKeysRemoved,
    Grant,
    GrantsChanged,
    QuotaSet,
    RoleRemoved,
    RoleSet,
    SecurityRecord,
    SecuritySnapshot,
    TokenRemoved,
    TokenSet,
    UserRemoved,
    UserSet,
)

_OfUsers = UserSet | TokenSet | AccessKeySet | UserRemoved | TokenRemoved | AccessKeyRemoved


@final
class SecurityState:
    """Users, tokens, access keys, roles, grants, quotas and wrapped data keys."""

    def __init__(self, snapshot: SecuritySnapshot | None = None) -> None:
        """Restore a state from its snapshot, or start empty."""
        found = snapshot or SecuritySnapshot()
        self._users = {each.name: each for each in found.users}
        self._tokens = {each.token_id: each for each in found.tokens}
        self._access_keys = {each.access_key_id: each for each in found.access_keys}
        self._roles = {each.name: each for each in found.roles}
        self._grants = dict.fromkeys(found.grants)
        self._quotas = {each.principal: each for each in found.quotas}
        self._data_keys: dict[bytes, dict[int, DataKeySet]] = {}
        for each in found.data_keys:
            self._data_keys.setdefault(each.topic_id, {})[each.key_id] = each
        self._version = found.version
        self.access = AccessTable()
        """The grants and roles, ready for decisions; read-only."""
        for grant in self._grants:
            self.access.add(grant)
        for role in found.roles:
            self.access.set_members(role.name, (), role.members)

    def snapshot(self) -> SecuritySnapshot:
        """Return the whole state; the constructor is the inverse."""
        keys = tuple(key for topic in self._data_keys.values() for key in topic.values())
        return SecuritySnapshot(
            tuple(self._users.values()),
            tuple(self._tokens.values()),
            tuple(self._roles.values()),
            tuple(self._grants),
            tuple(self._quotas.values()),
            keys,
            self._version,
            tuple(self._access_keys.values()),
        )

    @property
    def version(self) -> int:
        """Rises with each record: what was derived from an older version is out of date."""
        return self._version

    @property
    def users(self) -> Mapping[str, UserSet]:
        """All users by name."""
        return MappingProxyType(self._users)

    @property
    def tokens(self) -> Mapping[str, TokenSet]:
        """All tokens by id, also expired ones."""
        return MappingProxyType(self._tokens)

    @property
    def access_keys(self) -> Mapping[str, AccessKeySet]:
        """All access keys by id, also disabled ones."""
        return MappingProxyType(self._access_keys)

    @property
    def roles(self) -> Mapping[str, RoleSet]:
        """All roles by name."""
        return MappingProxyType(self._roles)

    @property
    def grants(self) -> Mapping[Grant, None]:
        """All grants, in the order in which they were added."""
        return MappingProxyType(self._grants)

    @property
    def quotas(self) -> Mapping[str, QuotaSet]:
        """All quotas by principal."""
        return MappingProxyType(self._quotas)

    def data_keys(self, topic_id: bytes) -> Mapping[int, DataKeySet]:
        """Return the wrapped data keys of a topic by key id; empty for a topic in the clear."""
        return MappingProxyType(self._data_keys.get(topic_id, {}))

    def apply(self, record: SecurityRecord) -> None:
        """Apply a record."""
        self._version += 1
        match record:
            case (
                UserSet()
                | TokenSet()
                | AccessKeySet()
                | UserRemoved()
                | TokenRemoved()
                | AccessKeyRemoved()
            ):
                self._apply_to_users(record)
            case RoleSet():
                self._set_role(record)
            case RoleRemoved():
                self._set_role(RoleSet(record.name, ()))
                self._roles.pop(record.name, None)
                self._drop_grants(f"role:{record.name}")
            case GrantsChanged():
                self._change_grants(record)
            case QuotaSet():
                self._quotas[record.principal] = record
                if not record.values:
                    del self._quotas[record.principal]
            case DataKeySet():
                self._data_keys.setdefault(record.topic_id, {})[record.key_id] = record
            case DataKeysRemoved():
                self._remove_keys(record)

    def topic_deleted(self, topic_id: bytes) -> None:
        """Forget the data keys of a deleted topic: its records cannot be opened any more."""
        if self._data_keys.pop(topic_id, None) is not None:
            self._version += 1

    def _apply_to_users(self, record: _OfUsers) -> None:
        match record:
            case UserSet():
                self._users[record.name] = record
            case TokenSet():
                self._tokens[record.token_id] = record
            case TokenRemoved():
                self._tokens.pop(record.token_id, None)
            case AccessKeySet():
                self._access_keys[record.access_key_id] = record
            case AccessKeyRemoved():
                self._access_keys.pop(record.access_key_id, None)
            case UserRemoved():
                self._remove_user(record.name)

    def _remove_user(self, name: str) -> None:
        self._users.pop(name, None)
        for token in [each for each in self._tokens.values() if each.user == name]:
            del self._tokens[token.token_id]
        for key in [each for each in self._access_keys.values() if each.user == name]:
            del self._access_keys[key.access_key_id]
        for role in [each for each in self._roles.values() if name in each.members]:
            members = tuple(member for member in role.members if member != name)
            self._set_role(RoleSet(role.name, members))
        self._drop_grants(f"user:{name}")
        self._quotas.pop(f"user:{name}", None)

    def _drop_grants(self, principal: str) -> None:
        removed = tuple(each for each in self._grants if each.principal == principal)
        self._change_grants(GrantsChanged((), removed))

    def _change_grants(self, record: GrantsChanged) -> None:
        for grant in record.removed:
            if grant in self._grants:
                del self._grants[grant]
                self.access.remove(grant)
        for grant in record.added:
            if grant not in self._grants:
                self._grants[grant] = None
                self.access.add(grant)

    def _set_role(self, record: RoleSet) -> None:
        before = self._roles.get(record.name)
        self._roles[record.name] = record
        self.access.set_members(
            record.name, () if before is None else before.members, record.members
        )

    def _remove_keys(self, record: DataKeysRemoved) -> None:
        keys = self._data_keys.get(record.topic_id, {})
        for key_id in record.key_ids:
            keys.pop(key_id, None)
        if not keys:
            self._data_keys.pop(record.topic_id, None)
