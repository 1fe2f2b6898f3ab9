"""The output of commands: tables, times, records and log lines."""
