"""The queue client (SQS: `SendMessage`, `ReceiveMessage`, `DeleteMessage`)."""
