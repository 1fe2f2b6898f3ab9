"""The commands `tidelog key`: master keys, and data keys of encrypted topics."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from tidelog.cli.client import ask, confirm
from tidelog.cli.connected import ConnectedGroup
from tidelog.cli.errors import CommandError
from tidelog.cli.options import examples, json_option
from tidelog.cli.output.tables import counted, print_json, print_table
from tidelog.cli.output.times import moment_text
from tidelog.wire.messages.keys import ChangedKeys, ListKeysReply

_FILE_MODE: Final = 0o600


@click.group(cls=ConnectedGroup)
def key() -> None:
    """Create master keys; list, rotate and shred data keys."""


@key.command(
    "create-master",
    epilog=examples(
        "tidelog key create-master master.key", "tidelog key create-master master.key --add"
    ),
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--add", is_flag=True, help="Put a new key before those of the file.")
def create_master(file: Path, add: bool) -> None:
    """Create a file with a master key for `master_key_file`.

    Give the same file to all brokers, and keep a copy elsewhere: without it, encrypted topics
    cannot be read. With --add the new key wraps new data keys, and the others still unwrap. Give
    the file to all brokers, run `tidelog key rewrap`, then remove the old lines.
    """
    from tidelog.broker.encryption.aes_gcm import KEY_SIZE
    from tidelog.broker.encryption.master_keys import MasterKeys, master_id_of, master_key_line
    from tidelog.wire.env.real.real_env import real_env

    try:
        before = file.read_text("ascii") if add else ""
        if add:
            MasterKeys.parse(before, str(file))
        new = real_env().random.randbytes(KEY_SIZE)
        _write(file, f"{master_key_line(new)}\n{before}", may_exist=add)
    except FileExistsError as error:
        raise CommandError(
            f"{file} exists, and was not changed; choose another file, or add a key with --add"
        ) from error
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from error
    click.echo(f"{file} has the new master key {master_id_of(new)}; keep a copy elsewhere")


def _write(file: Path, text: str, *, may_exist: bool) -> None:
    """Write a file for this user alone, completely or not at all."""
    if not may_exist and file.exists():
        raise FileExistsError
    temporary = file.with_name(f"{file.name}.tmp")
    with suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="ascii") as target:
        target.write(text)
        target.flush()
        os.fsync(target.fileno())
    temporary.replace(file)


@key.command(
    "list",
    epilog=examples("tidelog key list", "tidelog key list orders", "tidelog key list --json"),
)
@click.argument("topic", required=False)
@json_option
def list_all(topic: str | None, as_json: bool) -> None:
    """List data keys of topics, and master keys of brokers.

    Also the brokers that lack a master key, and the topics that they cannot read.
    """
    found = ask(lambda client: client.security.list_keys(topic))
    if as_json:
        print_json(_as_json(found))
        return
    rows = [
        (each.topic, data_key.key_id, data_key.master_id, moment_text(data_key.created_at_ms))
        for each in found.topics
        for data_key in each.keys
    ]
    if rows:
        print_table(["TOPIC", "KEY", "MASTER KEY", "CREATED"], rows, right=("KEY",))
    else:
        click.echo("no topic has a data key", err=True)
    click.echo()
    print_table(
        ["BROKER", "MASTER KEYS", "UNUSABLE TOPICS", "REASON"],
        [
            (
                each.node_id,
                ", ".join(each.master_ids) or None,
                ", ".join(each.locked_topics) or None,
                each.reason or None,
            )
            for each in found.brokers
        ],
    )


def _as_json(found: ListKeysReply) -> dict[str, object]:
    return {
        "topics": [
            {
                "topic": each.topic,
                "is_encrypted": each.is_encrypted,
                "keys": [
                    {
                        "key_id": data_key.key_id,
                        "master_id": data_key.master_id,
                        "created_at_ms": data_key.created_at_ms,
                    }
                    for data_key in each.keys
                ],
            }
            for each in found.topics
        ],
        "brokers": [
            {
                "node_id": each.node_id,
                "master_ids": each.master_ids,
                "unusable_topics": each.locked_topics,
                "reason": each.reason,
            }
            for each in found.brokers
        ],
    }


@key.command(epilog=examples("tidelog key rotate orders"))
@click.argument("topic")
def rotate(topic: str) -> None:
    """Seal the new records of a topic with a new data key.

    Records so far stay sealed with their keys. Brokers do the same when a key reaches the age
    `data_key_rotation_ms` of its topic.
    """
    changed = ask(lambda client: client.security.rotate_data_key(topic))
    _print_changed(changed, "the data key for new records")


@key.command(epilog=examples("tidelog key rewrap", "tidelog key rewrap orders"))
@click.argument("topic", required=False)
def rewrap(topic: str | None) -> None:
    """Wrap data keys by the newest master key.

    No record is rewritten. All brokers must have that master key. Afterwards the older master
    keys can be removed from all key files.
    """
    changed = ask(lambda client: client.security.rewrap_data_keys(topic))
    if changed:
        _print_changed(changed, "wrapped by the newest master key")
    else:
        click.echo("all data keys are wrapped by the newest master key")


@key.command(
    epilog=examples("tidelog key shred orders", "tidelog key shred orders --key 1 --key 2 --yes")
)
@click.argument("topic")
@click.option(
    "--key",
    "key_ids",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="ID",
    help="Delete only this data key; repeatable.",
)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")
def shred(topic: str, key_ids: tuple[int, ...], *, is_sure: bool) -> None:
    """Make records of a topic unreadable for ever.

    Deletes the data keys of all records so far, or those given; new records get a new key. Copies
    of the disks are unreadable then, too. Records that were moved to other topics stay readable.
    """
    if not is_sure:
        which = f"data keys {', '.join(map(str, key_ids))}" if key_ids else "all data keys so far"
        confirm(f"delete {which} of topic {topic}? their records are lost for ever")
    changed = ask(lambda client: client.security.shred_data_keys(topic, key_ids))
    _print_changed(changed, "deleted")


def _print_changed(changed: Sequence[ChangedKeys], what: str) -> None:
    for each in changed:
        if len(each.key_ids) == 1:
            click.echo(f"key {each.key_ids[0]} of {each.topic} is {what}")
        else:
            click.echo(f"{counted(len(each.key_ids), 'key')} of {each.topic} are {what}")
