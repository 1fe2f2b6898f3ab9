from typing import Any

class Message:
    delivery_info: dict[str, Any]

class Request:
    message: Message
