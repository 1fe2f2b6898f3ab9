"""The output of `tidelog group`, as text and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import click

from tidelog.cli.output.tables import print_fields, print_settings, print_table
from tidelog.client.admin.groups import (
    GroupDescription,
    GroupProgress,
    MemberDescription,
    OffsetMove,
)
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.messages.groups import GroupListing

_NUMBERS = (
    "MEMBERS", "PARTITION", "PARTITIONS", "OFFSET", "END", "LAG", "BEFORE", "AFTER", "CHANGE",
)  # fmt: skip
_ID_LENGTH = 8
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400


def listing_as_json(listing: GroupListing) -> dict[str, object]:
    """Return one group of the list."""
    return {
        "group_id": listing.group_id,
        "state": listing.state,
        "member_count": listing.member_count,
        "assignor": listing.assignor,
        "overrides": listing.overrides,
    }


def group_as_json(group: GroupDescription) -> dict[str, object]:
    """Return the description of a group."""
    found: dict[str, object] = asdict(group)
    found["members"] = [_member_as_json(member) for member in group.members]
    found["partitions"] = [_progress_as_json(each) for each in group.partitions]
    return found


def moves_as_json(
    group_id: str, moves: Mapping[TopicPartition, OffsetMove], *, dry_run: bool
) -> dict[str, object]:
    """Return the offset reset of each partition, or its plan."""
    return {
        "group_id": group_id,
        "dry_run": dry_run,
        "partitions": [{**at._asdict(), **asdict(move)} for at, move in moves.items()],
    }


def print_groups(groups: Sequence[GroupListing]) -> None:
    """Print one line for each group."""
    rows = [
        (each.group_id, each.state, each.member_count, each.assignor or None) for each in groups
    ]
    print_table(["GROUP", "STATE", "MEMBERS", "ASSIGNOR"], rows, right=_NUMBERS)


def print_group(group: GroupDescription) -> None:
    """Print the state, the members and the partitions of a group."""
    lags = [each.lag_records for each in group.partitions if each.lag_records is not None]
    print_fields(
        {
            "group": group.group_id,
            "state": group.state,
            "assignor": group.assignor or None,
            "lag": f"{sum(lags):,} records" if lags else None,
        }
    )
    if group.config_overrides:
        click.echo()
        print_settings(group.config, group.config_overrides, "group")
    if group.members:
        click.echo()
        _print_members(group.members)
    if group.partitions:
        click.echo()
        _print_progress(group)


def print_moves(moves: Mapping[TopicPartition, OffsetMove]) -> None:
    """Print the offset reset of each partition, or its plan."""
    rows = [
        (at.topic, at.partition, move.previous_offset, move.offset, _change(move))
        for at, move in moves.items()
    ]
    print_table(["TOPIC", "PARTITION", "BEFORE", "AFTER", "CHANGE"], rows, right=_NUMBERS)


def duration_text(duration_ms: int) -> str:
    """Return a duration in its two largest units: `3d 4h`, `5m 20s`, `1.5s`."""
    seconds = duration_ms / 1000
    if seconds < _MINUTE_S:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S}m {whole % _MINUTE_S}s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S}h {whole % _HOUR_S // _MINUTE_S}m"
    return f"{whole // _DAY_S}d {whole % _DAY_S // _HOUR_S}h"


def _print_members(members: Sequence[MemberDescription]) -> None:
    rows = [
        (
            _name(member),
            member.client_id,
            member.state,
            len(member.assigned),
            member.pattern or ", ".join(member.topics),
        )
        for member in members
    ]
    columns = ["MEMBER", "CLIENT", "STATE", "PARTITIONS", "READS"]
    print_table(columns, rows, right=_NUMBERS)


def _print_progress(group: GroupDescription) -> None:
    names = {member.member_id: _name(member) for member in group.members}
    rows = [
        (
            each.at.topic,
            each.at.partition,
            each.offset,
            each.high_watermark,
            each.lag_records,
            None if each.lag_ms is None else duration_text(each.lag_ms),
            None if each.member_id is None else names.get(each.member_id, each.member_id),
        )
        for each in group.partitions
    ]
    columns = ["TOPIC", "PARTITION", "OFFSET", "END", "LAG", "BEHIND", "MEMBER"]
    print_table(columns, rows, right=_NUMBERS)


def _name(member: MemberDescription) -> str:
    """Return the name of a static member, or the first characters of a member id."""
    return member.instance_id or member.member_id[:_ID_LENGTH]


def _change(move: OffsetMove) -> str | None:
    return None if move.previous_offset is None else f"{move.offset - move.previous_offset:+,}"


def _member_as_json(member: MemberDescription) -> dict[str, object]:
    found: dict[str, object] = asdict(member)
    for name in ("assigned", "revoking", "target"):
        places: Sequence[TopicPartition] = getattr(member, name)
        found[name] = [at._asdict() for at in places]
    return found


def _progress_as_json(progress: GroupProgress) -> dict[str, object]:
    found: dict[str, object] = asdict(progress)
    del found["at"]
    return {**progress.at._asdict(), **found}
