"""Listings in pages, with the Link header the client follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import JSONResponse, Response

from demo.hub.call import Call


def paged(
    call: Call, items: Sequence[Any], size: int, pin: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    """One page of ``items`` as JSON: at most ``size``, fewer with ``limit``, from ``cursor`` on.

    ``pin`` is the commit the listing belongs to: the next page's address names it, so that a listing stays one
    listing while the branch moves (the caller resolves it from the query parameter ``pin``).
    """
    start = call.number("cursor", 0, 1 << 30)
    count = max(1, call.number("limit", size, size))
    all_headers = {"X-Total-Count": str(len(items)), **(headers or {})}
    if start + count < len(items):
        extra = {"cursor": start + count, **({"pin": pin} if pin else {})}
        url = call.request.url.include_query_params(**extra)
        # the path as it came: a revision's %2F must not become a slash
        raw = call.request.scope["raw_path"].decode("latin-1")
        all_headers["Link"] = f'<{call.endpoint}{raw}?{url.query}>; rel="next"'
    return JSONResponse(list(items[start : start + count]), headers=all_headers)
