"""Commands about quotas.

Pure: no clock, no I/O.
"""

from collections.abc import Sequence

from tidelog.coordinator.security.commands import SetQuota
from tidelog.coordinator.security.records import QuotaSet, SecurityRecord
from tidelog.coordinator.security.state import SecurityState


def handle_quota_command(state: SecurityState, command: SetQuota) -> Sequence[SecurityRecord]:
    """Return the records of a command."""
    known = state.quotas.get(command.principal)
    before = {} if known is None else known.values
    removed = set(before) if command.remove_values == ("*",) else set(command.remove_values)
    kept = {name: value for name, value in before.items() if name not in removed}
    values = kept | command.set_values
    return [] if values == before else [QuotaSet(command.principal, values)]
