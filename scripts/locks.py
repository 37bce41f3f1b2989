"""Locks on files that end with the process that holds them: the kernel releases them, however the process dies.

Programs that a step starts hold its locks as well (:func:`held` is handed to them), so that a lock is free only when
nothing that was started under it is at work any more, even where the step itself was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

_held: set[int] = set()


def held() -> tuple[int, ...]:
    """The descriptors of this process's locks, for the programs that it starts."""
    return tuple(_held)


def take(path: Path, *, shared: bool = False, wait: bool = False) -> int | None:
    """Lock a file, made if missing, until :func:`drop` or the end of the process; None where it is not free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    _held.add(descriptor)
    return descriptor


def drop(descriptor: int) -> None:
    """Release a lock."""
    _held.discard(descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


@contextlib.contextmanager
def hold(path: Path, on_wait: Callable[[], None], *, shared: bool = False) -> Iterator[None]:
    """Hold a lock; calls ``on_wait`` once and waits where it is not free."""
    descriptor = take(path, shared=shared)
    if descriptor is None:
        on_wait()
        descriptor = take(path, shared=shared, wait=True)
    assert descriptor is not None
    try:
        yield
    finally:
        drop(descriptor)
