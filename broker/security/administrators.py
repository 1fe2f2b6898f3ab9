"""The administrator of a new cluster, and one after a lock-out, both from files of an operator.

Shell: submits commands. A new cluster has its administrator before it serves a client, so that it
is never open in between. A recovery needs write access to the data directory of a node: `tidelog
admin recover` leaves a request there, and the next start of that broker has the controller decide
it. So a recovery is a record as any other one, on all nodes, and never an edit of one node's log.
"""

from typing import Final, final

import trio

from tidelog.broker.audit.event import AuditEvent, AuditKind, AuditSink
from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.partitions.data_directory import DataDirectory
from tidelog.coordinator.metadata.features import RECORD_LEVELS
from tidelog.coordinator.node import ClusterNode
from tidelog.coordinator.security.administrator_commands import has_administrators
from tidelog.coordinator.security.commands import SetAdministrator
from tidelog.coordinator.security.records import ScramCredential, UserSet
from tidelog.logstore.checkpoint import DamagedFileError
from tidelog.wire.env.env import Env
from tidelog.wire.errors import BrokerError, RetriableError
from tidelog.wire.security.administrator_file import NewAdministrator
from tidelog.wire.security.scram import (
    ITERATIONS,
    SALT_BYTES,
    SaltedBy,
    password_keys,
    salted_password,
)

_LEVEL: Final = RECORD_LEVELS[UserSet]
_ATTEMPT_S: Final = 10.0
_RETRY_S: Final = 0.2


async def administrator_command(env: Env, wanted: NewAdministrator) -> SetAdministrator:
    """Return the command for an administrator; a password takes a thread half a second.

    Raises:
        ConfigError: The password has characters that no password may have.
    """
    if wanted.token is not None:
        return SetAdministrator(wanted.user, None, wanted.token.token_id, wanted.token.sha256)
    keys = wanted.keys
    if keys is None:
        password = wanted.password or ""
        by = SaltedBy(env.random.randbytes(SALT_BYTES), ITERATIONS)
        keys = password_keys(await env.run_in_thread(lambda: salted_password(password, by)), by)
    return SetAdministrator(wanted.user, ScramCredential(*keys))


@final
class Administrators:
    """Carries out what files of an operator ask for, at the start of a broker."""

    def __init__(
        self, env: Env, cluster: ClusterNode, directory: DataDirectory, *, audit: AuditSink
    ) -> None:
        """Submit commands to `cluster`, in which this broker has registered."""
        self._audit = audit
        self._env = env
        self._cluster = cluster
        self._directory = directory

    async def set_first(self, wanted: NewAdministrator) -> None:
        """Give a cluster without users its administrator; return when it has one.

        A cluster of an earlier feature level has none afterwards.

        Raises:
            ConfigError: The password has characters that no password may have.
        """
        command: SetAdministrator | None = None
        while True:
            try:
                await self._cluster.command_client.catch_up(timeout_s=_ATTEMPT_S)
                reason = self._reason_to_ignore()
                if reason:
                    self._env.probe("bootstrap_admin_ignored", user=wanted.user, reason=reason)
                    return
                if self._cluster.metadata.state.feature_level >= _LEVEL:
                    command = command or await administrator_command(self._env, wanted)
                    await self._cluster.command_client.submit(command, timeout_s=_ATTEMPT_S)
                    self._report_first(command)
                    return
            except RetriableError as error:
                self._env.probe(
                    "administrator_delayed",
                    severity="warning",
                    user=wanted.user,
                    reason=str(error),
                )
            await trio.sleep(_RETRY_S)

    def _reason_to_ignore(self) -> str:
        """Return why the cluster gets no first administrator; empty if it gets one."""
        state = self._cluster.metadata.state
        if has_administrators(state.security):
            return "the cluster has users; its administrator adds others"
        if state.feature_level < _LEVEL and not state.is_first_level_open:
            return (
                f"users need feature level {_LEVEL}, and the cluster has level"
                f" {state.feature_level}; run `tidelog cluster features --upgrade`, and restart"
                " this broker"
            )
        return ""

    def _report_first(self, command: SetAdministrator) -> None:
        """Report the administrator, unless another node of the new cluster was faster."""
        security = self._cluster.metadata.state.security
        user = security.users.get(command.user)
        is_own = user is not None and user.credential == command.credential
        if is_own and (command.token_id is None or command.token_id in security.tokens):
            self._env.probe("administrator_created", user=command.user)
            self._note("administrator.create", command.user)

    def _note(self, action: str, user: str) -> None:
        """Record an action of the operator of this machine, which no principal asked for."""
        self._audit.note(AuditEvent(AuditKind.GRANT, action, resource=f"user:{user}"))

    def warn_if_none(self, config: BrokerConfig) -> None:
        """Warn if no user can administer the cluster, though it refuses anonymous clients."""
        if config.authentication == "required":
            setting = "authentication = required"
        elif config.authorization == "enforce":
            setting = "authorization = enforce"
        else:
            return
        if not has_administrators(self._cluster.metadata.state.security):
            self._env.probe(
                "administrator_missing",
                severity="warning",
                reason=f"no client may administer the cluster ({setting}), and it has no users;"
                " start a broker with --bootstrap-admin FILE",
            )

    async def recover(self) -> None:
        """Carry out the recovery that the data directory asks for, if any.

        Waits for a majority of the cluster.
        """
        try:
            command = await self._env.run_in_thread(self._directory.wanted_recovery)
        except (DamagedFileError, OSError) as error:
            self._report_unrecovered("", f"the request cannot be read: {error}")
            return
        if command is None:
            return
        while True:
            try:
                await self._cluster.command_client.submit(command, timeout_s=_ATTEMPT_S)
                await self._env.run_in_thread(self._directory.recovery_done)
            except RetriableError:
                await trio.sleep(_RETRY_S)
            except (BrokerError, OSError) as error:
                self._report_unrecovered(command.user, str(error))
                return
            else:
                self._env.probe("administrator_recovered", severity="error", user=command.user)
                self._note("administrator.recover", command.user)
                return

    def _report_unrecovered(self, user: str, reason: str) -> None:
        self._env.probe("administrator_not_recovered", severity="error", user=user, reason=reason)
