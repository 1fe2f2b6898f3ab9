"""Commands on a queue partition: each returns journal entries and a reply."""
