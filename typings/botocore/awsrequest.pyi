from collections.abc import Mapping

class AWSPreparedRequest:
    method: str
    url: str
    headers: Mapping[str, str | bytes]
    body: str | bytes | None

class AWSRequest:
    def __init__(
        self,
        method: str | None = None,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        data: str | bytes | None = None,
    ) -> None: ...
    def prepare(self) -> AWSPreparedRequest: ...
