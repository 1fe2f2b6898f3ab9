"""Commands about quotas.

Pure: no clock, no I/O.
"""

from collections.abc import Sequence

from tidelog.coordinator.security.commands import SetQuota
from tidelog.coordinator.security.quota_limits import check_quota_owner
from tidelog.coordinator.security.records import QuotaSet, SecurityRecord
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.config.quotas import (
    ABOUT,
    check_quotas,
)
from tidelog.wire.errors import InvalidRequestError


def handle_quota_command(state: SecurityState, command: SetQuota) -> Sequence[SecurityRecord]:
    """Return the records of a command.

    Raises:
        InvalidRequestError: The principal, a name or a value is not legal.
    """
    check_quota_owner(command.principal)
    check_quotas(command.set_values)
    known = state.quotas.get(command.principal)
    before = {} if known is None else known.values
    if command.remove_values == ("*",):
        removed = set(before)
    else:
        removed = set(command.remove_values)
        for name in removed:
            if name not in ABOUT:
                raise InvalidRequestError(
                    f"there is no quota {name!r}; the quotas are {', '.join(ABOUT)}"
                )
    kept = {name: value for name, value in before.items() if name not in removed}
    values = kept | command.set_values
    return [] if values == before else [QuotaSet(command.principal, values)]
