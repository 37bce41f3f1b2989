"""Errors as the Hub answers them: a status, a code the client maps to an exception, and a sentence."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response


class HubError(Exception):
    """An answer other than success.

    ``code`` becomes ``X-Error-Code`` (RepoNotFound, RevisionNotFound, EntryNotFound, GatedRepo), ``extra`` is added
    to the JSON body, ``headers`` to the headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        extra: dict[str, object] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code
        self.extra, self.headers = extra or {}, headers or {}

    def response(self) -> Response:
        """The HTTP response of this error."""
        safe = self.message.encode("ascii", "backslashreplace").decode().replace("\r", " ").replace("\n", " ")
        headers = {"X-Error-Message": safe, **self.headers}
        if self.code:
            headers["X-Error-Code"] = self.code
        if self.status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="Hub"'
        return JSONResponse({"error": self.message, **self.extra}, self.status, headers)


def repo_not_found(anonymous: bool) -> HubError:
    """A repository that does not exist or may not be seen; without a token the Hub says 401."""
    return HubError(401 if anonymous else 404, "Repository not found", "RepoNotFound")


def revision_not_found(revision: str) -> HubError:
    """A branch, tag, pull request or commit that does not exist."""
    return HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")


def entry_not_found(path: str, commit: str | None = None) -> HubError:
    """A path that does not exist at a revision; the commit lets the client remember that."""
    headers = {"X-Repo-Commit": commit} if commit else None
    return HubError(404, f"Entry not found: {path}", "EntryNotFound", headers=headers)
