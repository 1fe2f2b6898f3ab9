from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

class SigV4Auth:
    def __init__(self, credentials: Credentials, service_name: str, region_name: str) -> None: ...
    def add_auth(self, request: AWSRequest) -> None: ...

class SigV4QueryAuth(SigV4Auth):
    def __init__(
        self, credentials: Credentials, service_name: str, region_name: str, expires: int = 3600
    ) -> None: ...
