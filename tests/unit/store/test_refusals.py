"""Errors of Redis while it takes no writes, in the words of its releases."""

from __future__ import annotations

import pytest
import redis
from redis.exceptions import ClusterDownError, OutOfMemoryError, ReadOnlyError, ResponseError

from boyd.errors import StoreError, StoreReadOnly, StoreUnavailable
from boyd.store import translate_errors

_IN_A_SCRIPT = "Error running script (call to f_0a): @user_script:12: @user_script: 12: -"


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
        ResponseError(f"{_IN_A_SCRIPT}OOM command not allowed when used memory > 'maxmemory'."),
        ResponseError("MISCONF Errors writing to the AOF file: No space left on device"),
        ResponseError(f"{_IN_A_SCRIPT}MISCONF Errors writing to the AOF file: No space left"),
        ClusterDownError("The cluster is down"),
    ],
)
def test_no_room_is_a_reason_to_wait(error: redis.RedisError) -> None:
    with pytest.raises(StoreReadOnly, match="does not accept writes"), translate_errors():
        raise error


@pytest.mark.parametrize(
    "error",
    [
        ResponseError("wrong number of arguments for 'get' command"),
        ResponseError("unknown command 'BLOOM'"),
        ReadOnlyError("no connection has translated this"),
    ],
)
def test_every_other_refusal_is_an_error(error: redis.RedisError) -> None:
    with pytest.raises(StoreError) as raised, translate_errors():
        raise error
    assert not isinstance(raised.value, StoreUnavailable)
