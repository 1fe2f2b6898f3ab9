"""States that a good swarm of Raft runs must reach."""

from typing import Final

PROBES: Final = {
    "crash": "a node crashed",
    "crash_on_commit": "a leader crashed when it had committed",
    "crash_on_sync": "a node crashed in a sync",
    "crash_in_write": "a node crashed in the middle of a write",
    "crash_on_election": "a node crashed when it was elected",
    "crash_in_change": "a leader crashed in a change of the membership",
    "crash_in_install": "a node crashed when it installed a snapshot",
    "crash_on_vote": "a node crashed when it had voted",
    "mute_on_election": "a node was cut off when it was elected",
    "damage": "a disk was lost",
    "transfer": "the leadership was transferred",
    "AddLearner": "a learner was added",
    "Promote": "a learner became a voter",
    "Remove": "a member was removed",
    "snapshot sent": "a leader sent a snapshot",
    "snapshot installed": "a follower installed a snapshot",
}
"""Name and meaning of every probe."""
