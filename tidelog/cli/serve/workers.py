"""The child processes of `tidelog serve --workers N`, one broker in each.

Shell: owns the processes. It restarts none of them: that is the task of the service manager.
"""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, final

import trio

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.cli.errors import CommandError

_log = logging.getLogger("tidelog.workers")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


async def run_workers(
    plans: Sequence[BrokerConfig], *, config_file: str | None, is_http_default: bool = False
) -> int:
    """Run a broker for each plan until all have ended; return the exit status.

    `is_http_default` says that the plans have `http_listen` by default, so that it may be in use.
    The first SIGTERM or SIGINT stops all workers in order, a second one at once. With TLS, SIGHUP
    has all workers look for new certificates.

    Raises:
        CommandError: A worker failed; one line.
    """
    workers = [
        Worker(number, plan, config_file=config_file, is_http_default=is_http_default)
        for number, plan in enumerate(plans, 1)
    ]
    signal_count = 0
    last = signal.SIGTERM
    has_tls = any(plan.tls != "off" for plan in plans)
    heeded = (*_SIGNALS, signal.SIGHUP) if has_tls else _SIGNALS
    with trio.open_signal_receiver(*heeded) as signals:
        async with trio.open_nursery() as nursery:

            async def pass_on() -> None:
                nonlocal signal_count, last
                async for number in signals:
                    if number == signal.SIGHUP:
                        for worker in workers:
                            worker.send(signal.SIGHUP)
                        continue
                    signal_count += 1
                    last = signal.Signals(number)
                    if signal_count == 1:
                        _log.info("stopping all workers in order; a second signal stops at once")
                    for worker in workers:
                        worker.end()

            nursery.start_soon(pass_on)
            async with trio.open_nursery() as running:
                for worker in workers:
                    running.start_soon(worker.run)
            nursery.cancel_scope.cancel()
    if signal_count > 1:
        return 128 + last
    failed = [worker for worker in workers if worker.status]
    if failed:
        numbers = ", ".join(str(worker.number) for worker in failed)
        what = "worker" if len(failed) == 1 else "workers"
        raise CommandError(f"{what} {numbers} failed; see the log lines above for the reason")
    return 0


@final
class Worker:
    """One broker, as a child process."""

    def __init__(
        self,
        number: int,
        plan: BrokerConfig,
        *,
        config_file: str | None,
        is_http_default: bool = False,
    ) -> None:
        """Prepare a broker with the settings of `plan` and of the file; see `run_workers`."""
        self._http_flag = "--default-http-listen" if is_http_default else "--http-listen"
        self.number = number
        """Number of the worker, from 1 on."""
        self.status: int | None = None
        """Exit status after the end; negative for a signal."""
        self._plan = plan
        self._config_file = config_file
        self._process: trio.Process | None = None
        self._was_told = False

    def end(self) -> None:
        """Stop the worker in order; a second call stops it at once."""
        self._was_told = True
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the worker, if it runs."""
        if self._process is not None and self.status is None:
            self._process.send_signal(number)

    async def run(self) -> None:
        """Run the worker to its end; kill it if cancelled."""
        process = await trio.lowlevel.open_process(
            self._command(),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=self._environment(),
            # The terminal sends Ctrl-C to the whole process group. In our group, a worker would get
            # two signals, and the second one stops it at once.
            process_group=0,
        )
        self._process = process
        if self._was_told:
            process.send_signal(signal.SIGTERM)
        try:
            await self._pass_on_log(process)
            self.status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                with trio.CancelScope(shield=True):
                    await process.wait()
        if not self._was_told:
            _log.error(
                "worker_ended",
                extra={
                    "fields": {
                        "worker": self.number,
                        "node_id": self._plan.node_id,
                        "status": self.status,
                        "reason": "by itself; it is not restarted, the other workers continue",
                    }
                },
            )

    def _command(self) -> list[str]:
        plan = self._plan
        command = [sys.executable, "-m", "tidelog", "serve"]
        if self._config_file is not None:
            command += ["--config", self._config_file]
        flags = {
            "--data-dir": plan.data_dir,
            "--listen": plan.listen,
            self._http_flag: plan.http_listen,
            "--sqs-listen": plan.sqs_listen,
            "--node-id": str(plan.node_id),
            "--peers": plan.peers,
            "--cluster-secret-file": plan.cluster_secret_file,
            "--tls-directory": plan.tls_directory,
            "--broker-rack": plan.broker_rack,
            "--log-format": plan.log_format,
            "--log-level": plan.log_level,
        }
        return [*command, *(word for flag in flags.items() for word in flag)]

    def _environment(self) -> dict[str, str]:
        # These settings have no flag with a value; the environment overrides the file.
        return {
            **os.environ,
            "TIDELOG_ADVERTISED": self._plan.advertised,
            "TIDELOG_BOOTSTRAP_ADMIN": self._plan.bootstrap_admin,
            "TIDELOG_TLS": self._plan.tls,
            "TIDELOG_SQS_AUTHENTICATION": self._plan.sqs_authentication,
            "TIDELOG_SQS_STRICT": self._plan.sqs_strict,
            "TIDELOG_INSECURE_LISTEN": self._plan.insecure_listen,
        }

    async def _pass_on_log(self, process: trio.Process) -> None:
        assert process.stderr is not None
        rest = b""
        async for chunk in process.stderr:
            *lines, rest = (rest + bytes(chunk)).split(b"\n")
            for line in lines:
                _write(marked(line, self.number))
        if rest:
            _write(marked(rest, self.number))


def marked(line: bytes, number: int) -> bytes:
    """Return a log line with the number of its worker; JSON stays JSON."""
    if line.startswith(b'{"'):
        return b'{"worker": %d, %s' % (number, line[1:])
    return b"[%d] %s" % (number, line)


def _write(line: bytes) -> None:
    # A closed standard error must not stop the brokers.
    with suppress(OSError):
        sys.stderr.buffer.write(line + b"\n")
        sys.stderr.buffer.flush()
