"""A guarded session that limits the time and the size of a whole response."""

from __future__ import annotations

import os
import threading
from io import BytesIO
from typing import Any

from requests import PreparedRequest, RequestException, Response
from urllib3.exceptions import HTTPError

from boyd.outbound.guarded_session import GuardedSession, check_url

#: The most bytes of a response.
MAX_BYTES = 1_048_576


class BoundedSession(GuardedSession):
    """A session for one request to a server of the operator's choice.

    It trusts the certificates in `REQUESTS_CA_BUNDLE`, as callbacks do. *timeout* is in seconds,
    for the request and its response as a whole, after the host's name is resolved.
    """

    def __init__(self, *, allow_private: bool, timeout: float) -> None:
        super().__init__(allow_private=allow_private, timeout=timeout)
        self.verify = os.environ.get("REQUESTS_CA_BUNDLE") or True
        self._allow_private = allow_private
        self._timeout = timeout

    def send(self, request: PreparedRequest, **options: Any) -> Response:
        """Send a request and read its response.

        Raises:
            requests.RequestException: the address is refused, there is no complete response in
                time, or it is longer than `MAX_BYTES`.
        """
        refused = check_url(request.url or "", allow_private=self._allow_private)
        if refused:
            raise RequestException(f"the URL is refused: {refused}")
        limit = threading.Timer(self._timeout, self.line.cut)
        limit.daemon = True
        limit.start()
        try:
            response = super().send(request, **{**options, "stream": True})
            body = response.raw.read(MAX_BYTES + 1, decode_content=True)
        except HTTPError as error:
            raise RequestException(f"the response broke off: {error}") from error
        finally:
            limit.cancel()
        if len(body) > MAX_BYTES:
            raise RequestException(f"the response is longer than {MAX_BYTES} bytes")
        response.raw = BytesIO(body)
        return response
