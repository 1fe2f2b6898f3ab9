"""Reading a queue without receiving: browse, history, cancellation of scheduled messages."""
