"""Background work of a broker: group commit, retention, compaction, scrubbing."""
