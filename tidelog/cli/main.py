"""The entry point of the command `tidelog`: commands by name, and the exit status of errors.

Exit status: 0 success, 2 wrong use, 130 interrupted, 141 after the reader closed the output pipe,
and 1 with one line on standard error for everything else. Only a defect of tidelog shows a
traceback.
"""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import final

import click

from tidelog.cli.connected import (
    BROKER,
    PROFILE,
    TLS_OPTIONS,
    Connected,
    given_broker,
    given_profile,
)
from tidelog.cli.environment import check_environment
from tidelog.cli.lazy_group import LazyCommand, LazyGroup
from tidelog.cli.usage import WrongUse, first_of

_FAILURE = 1
_USAGE = 2
_INTERRUPTED = 128 + signal.SIGINT
_BROKEN_PIPE = 128 + signal.SIGPIPE

COMMANDS = {
    "serve": LazyCommand("tidelog.cli.serve.serve", "serve", "Run a broker."),
    "topic": LazyCommand(
        "tidelog.cli.topic.topic", "topic", "Create, describe, alter and delete topics."
    ),
    "produce": LazyCommand(
        "tidelog.cli.produce", "produce", "Produce lines of text to a topic as records."
    ),
    "consume": LazyCommand(
        "tidelog.cli.consume", "consume", "Print the records of a topic, one per line."
    ),
    "queue": LazyCommand(
        "tidelog.cli.queue.queue", "queue", "Create, describe, alter and delete queues."
    ),
    "group": LazyCommand(
        "tidelog.cli.group.group", "group", "Describe, alter, reset and delete consumer groups."
    ),
    "transaction": LazyCommand(
        "tidelog.cli.transaction", "transaction", "List transactions, and forget their names."
    ),
    "outbox": LazyCommand(
        "tidelog.cli.outbox", "outbox", "Relay the outbox tables of databases to topics."
    ),
    "sqs": LazyCommand("tidelog.cli.sqs", "sqs", "Serve Amazon SQS over the queues of a cluster."),
    "cluster": LazyCommand(
        "tidelog.cli.cluster.cluster",
        "cluster",
        "Describe and alter the cluster; elect leaders, reassign.",
    ),
    "access": LazyCommand(
        "tidelog.cli.security.access", "access", "Grant, revoke and explain access."
    ),
    "role": LazyCommand(
        "tidelog.cli.security.role", "role", "Create, alter, list and delete roles."
    ),
    "audit": LazyCommand(
        "tidelog.cli.security.audit", "audit", "Search audit records and sum up usage."
    ),
    "key": LazyCommand(
        "tidelog.cli.key.key", "key", "Create master keys; list, rotate and shred data keys."
    ),
    "alerts": LazyCommand("tidelog.cli.alerts", "alerts", "Show the alerts that fire now."),
    "broker": LazyCommand(
        "tidelog.cli.broker.broker",
        "broker",
        "Describe, drain, replace and unregister brokers.",
    ),
    "user": LazyCommand(
        "tidelog.cli.security.user", "user", "Create, list and remove users, and change passwords."
    ),
    "token": LazyCommand(
        "tidelog.cli.security.token", "token", "Create, list and revoke tokens of users."
    ),
    "access-key": LazyCommand(
        "tidelog.cli.security.access_key",
        "access_key",
        "Create, list, disable and remove access keys of users, for SDKs of AWS.",
    ),
    "admin": LazyCommand(
        "tidelog.cli.admin.admin", "admin", "Recover the administration of a cluster."
    ),
    "quota": LazyCommand(
        "tidelog.cli.quota.quota", "quota", "Set, list and remove quotas of principals."
    ),
    "top": LazyCommand(
        "tidelog.cli.top.top", "top", "Show brokers, topics, queues and groups live."
    ),
    "log": LazyCommand(
        "tidelog.cli.log.log", "log", "Dump, verify and repair files of a stopped broker."
    ),
    "bench": LazyCommand(
        "tidelog.cli.bench.bench",
        "bench",
        "Measure produce, consume and queue rates of the cluster.",
    ),
    "completion": LazyCommand(
        "tidelog.cli.completion",
        "completion",
        "Print the script that completes commands in a shell.",
    ),
    "demo": LazyCommand("tidelog.cli.demo", "demo", "Run a demonstration on temporary data."),
}


@final
class _Tidelog(LazyGroup):
    """The command `tidelog`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; refuse an address before one that needs none."""
        name, command, rest = super().resolve_command(ctx, args)
        if not isinstance(command, Connected):
            for option, given in (("--broker", given_broker), ("--profile", given_profile)):
                if given(ctx) is not None:
                    raise _needs_no_broker(f"{ctx.command_path} {name}", option)
        return name, command, rest


def _needs_no_broker(command_path: str, option: str) -> WrongUse:
    return WrongUse(f"`{command_path}` connects to no broker: leave out {option}")


tidelog = _Tidelog(
    "tidelog",
    lazy=COMMANDS,
    params=[BROKER, PROFILE, *TLS_OPTIONS],
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Run and use tidelog, a log broker with streams, queues and replay.

    \b
    First steps:
      tidelog demo                            produce, kill and recover a broker
      tidelog serve                           run a broker on 127.0.0.1:8433
      tidelog topic create orders
      echo 'hello' | tidelog produce orders
      tidelog consume orders --from-beginning
    """,
)
click.version_option(package_name="tidelog", message="tidelog %(version)s")(tidelog)


def main() -> None:
    """Run the command of the process arguments, and exit."""
    _open_what_is_closed()
    sys.exit(run(sys.argv[1:]))


def _open_what_is_closed() -> None:
    """Open closed outputs on `/dev/null`; otherwise the next socket would get their text."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != descriptor:
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(descriptor, "w"))


def run(arguments: Sequence[str], command: click.Command = tidelog) -> int:
    """Run a command and return the exit status."""
    if not __debug__:
        _complain("tidelog keeps its assertions: run it without python -O and PYTHONOPTIMIZE")
        return _FAILURE
    try:
        check_environment(os.environ)
        status = command.main(list(arguments), prog_name="tidelog", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as ended:
        # Click raises this when the reader has closed the output pipe.
        return _stop_writing() if ended.code else 0
    except BaseException as error:  # noqa: BLE001 - unknown errors are raised again
        unreadable = [each for each in arguments if not _is_text(each)]
        if unreadable and isinstance(first_of(error), UnicodeEncodeError):
            _complain(f"the argument {unreadable[0]!r} is not UTF-8 text")
            return _USAGE
        return _status_of(error)
    return status if isinstance(status, int) else 0


def _is_text(argument: str) -> bool:
    """Return whether an argument is UTF-8: Python keeps other bytes as surrogates."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _status_of(error: BaseException) -> int:
    """Print an error and return its exit status; raise a defect again."""
    cause = first_of(error)
    if isinstance(cause, (click.Abort, KeyboardInterrupt)):
        return _INTERRUPTED
    if isinstance(cause, BrokenPipeError):
        return _stop_writing()
    if isinstance(cause, click.exceptions.Exit):
        return cause.exit_code
    if isinstance(cause, click.ClickException):
        _show(cause)
        return cause.exit_code
    # Not at the top: the import takes 40 ms, and `--help` does not need it.
    from tidelog.cli.errors import reason_of

    reason = reason_of(cause)
    if reason is None:
        raise error
    _complain(reason)
    return _FAILURE


def _show(error: click.ClickException) -> None:
    """Print a usage error."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    hint = _hint_for(error)
    if hint is not None:
        _complain(hint)
        return
    if isinstance(error, click.UsageError) and error.ctx is not None:
        command = error.ctx.command_path
        click.echo(f"{error.ctx.get_usage()}\nTry '{command} --help' for help.\n", err=True)
    _complain(error.format_message())


def _hint_for(error: click.ClickException) -> str | None:
    """Return the line that answers an option or command of another program."""
    if isinstance(error, click.NoSuchOption):
        word = error.option_name
    elif isinstance(error, click.exceptions.NoSuchCommand):
        word = error.command_name
    else:
        return None
    if error.ctx is None:
        return None
    for option in (BROKER, PROFILE):
        if word in option.opts:
            name = max(option.opts, key=lambda each: each in ("--broker", "--profile"))
            return _needs_no_broker(error.ctx.command_path, name).message
    # Not at the top: only errors need the table.
    from tidelog.cli.hints import hint_for

    return hint_for(error.ctx.command_path.partition(" ")[2], word)


def _complain(message: str) -> None:
    """Print an error as one line on standard error."""
    line = " ".join(message.split())
    with suppress(BrokenPipeError):
        click.echo(f"{click.style('error:', fg='red', bold=True)} {line}", err=True)


def _stop_writing() -> int:
    """Discard all further standard output, also the flush at exit; return the status."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return _BROKEN_PIPE
