"""Probes: states that a good swarm of Raft runs must reach."""

from typing import Final

PROBES: Final = {
    "crash": "a node crashed",
    "crash_on_commit": "a leader crashed just after a commit",
    "crash_on_sync": "a node crashed in a sync",
    "crash_in_write": "a node crashed in the middle of a write",
    "crash_on_election": "a node crashed just after its election",
    "crash_in_change": "a leader crashed during a membership change",
    "crash_in_install": "a node crashed during the installation of a snapshot",
    "crash_on_vote": "a node crashed just after its vote",
    "mute_on_election": "a node was cut off just after its election",
    "damage": "a disk was lost",
    "transfer": "the leadership was transferred",
    "AddLearner": "a learner was added",
    "Promote": "a learner became a voter",
    "Remove": "a member was removed",
    "forge": "a node sent a message that no correct node sends",
    "repeat": "a node sent old messages again",
    "snapshot sent": "a leader sent a snapshot",
    "snapshot installed": "a follower installed a snapshot",
}
"""Name and meaning of every probe."""
