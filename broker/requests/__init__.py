"""Requests in progress: responses, purgatory, deadlines, memory budget."""
