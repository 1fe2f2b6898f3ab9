"""Output for people and programs: tables, times, records, log lines."""
