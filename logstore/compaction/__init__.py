"""Log compaction (Kafka: `LogCleaner`)."""
