"""The part of Celery that the example and the trial use; the package has no types of its own."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Generic, ParamSpec, TypeVar, overload

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

class Request:
    retries: int

class AsyncResult(Generic[_Result]):
    def get(self, timeout: float | None = ...) -> _Result: ...

class Signature: ...

class Task(Generic[_Parameters, _Result]):
    request: Request
    def __call__(self, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result: ...
    def delay(
        self, *args: _Parameters.args, **kwargs: _Parameters.kwargs
    ) -> AsyncResult[_Result]: ...
    def apply_async(
        self,
        args: tuple[object, ...] = ...,
        *,
        eta: datetime | None = ...,
        retry: bool = ...,
        retry_policy: dict[str, float | None] = ...,
    ) -> AsyncResult[_Result]: ...
    def s(self, *args: object) -> Signature: ...

class Settings:
    def update(self, **settings: object) -> None: ...

class Celery:
    conf: Settings
    def __init__(self, main: str, *, broker: str, backend: str) -> None: ...
    @overload
    def task(
        self, fun: Callable[_Parameters, _Result], /
    ) -> Task[_Parameters, _Result]: ...
    @overload
    def task(
        self, **options: object
    ) -> Callable[[Callable[..., _Result]], Task[..., _Result]]: ...

class _Chord:
    def __call__(self, body: Signature) -> AsyncResult[Any]: ...

def chord(header: Iterable[Signature]) -> _Chord: ...
