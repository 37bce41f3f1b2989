"""The Hub as the steps use it: errors in one line, progress in bytes, tokens never shown.

Everything goes through huggingface_hub, so HF_ENDPOINT, HF_TOKEN, HF_HUB_CACHE and the login mean what they mean there.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import httpx2
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential
from tqdm import tqdm

from scripts import core
from scripts.core import BuildError

LIBRARY = "dflash-drafts"
"""How this project names itself to the server."""

SHORT = "Consistency check failed"
"""How the client's plain OSError begins when a body ended early."""

PAUSE = 1.0
"""Seconds before the second attempt at a transfer; later ones wait longer, up to eight seconds."""

PATIENCE = 120
"""Longest wait in seconds that a server may ask for (Retry-After); one that asks for more is told to the user."""

QUOTA = re.compile(r"storage|quota", re.IGNORECASE)
"""What is in the message of a 403 that is about room, not about rights."""

UNREACHABLE = "check the network and HF_ENDPOINT; `make demo` builds an embedded pair without Hugging Face"


def api() -> HfApi:
    """The Hub's client, naming this project to the server."""
    return HfApi(library_name=LIBRARY)


def page(repo: str) -> str:
    """The address of a repository's page on the Hub in use."""
    return f"{constants.ENDPOINT}/{repo}"


def passing(error: BaseException) -> bool:
    """Whether an error may pass by itself: a broken connection, an overloaded server, a body that ended early.

    A server that was not reached at all counts as gone: a run without a network has to end at once.
    """
    if isinstance(error, HfHubHTTPError):
        return (
            error.response is not None
            and (error.response.status_code in (408, 429) or error.response.is_server_error)
            and asked_to_wait(error) <= PATIENCE
        )
    if isinstance(error, (LocalEntryNotFoundError, httpx2.ConnectError, httpx2.ConnectTimeout)):
        return False  # of the first, the client has tried again already, for half a minute
    return isinstance(error, httpx2.TransportError) or (isinstance(error, OSError) and SHORT in str(error))


def asked_to_wait(error: BaseException | None) -> int:
    """The seconds that the server asks to be left alone for."""
    response = error.response if isinstance(error, HfHubHTTPError) else None
    said = response.headers.get("Retry-After", "") if response is not None else ""
    return int(said) if said.isdecimal() else 0


def persistent(*tried: type[Exception]) -> Retrying:
    """Attempts at one request: up to four, one to eight seconds apart or as the server asks, if its error may pass.

    ``tried`` are errors that the client itself has met with attempts enough.
    """
    pause = wait_exponential(multiplier=PAUSE, max=8)

    def wait(state: RetryCallState) -> float:
        return max(pause(state), asked_to_wait(state.outcome.exception() if state.outcome else None))

    return Retrying(
        retry=retry_if_exception(lambda error: passing(error) and not isinstance(error, tried)),
        stop=stop_after_attempt(4),
        wait=wait,
        before_sleep=_again,
        reraise=True,
    )


def _again(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    core.say(f"attempt {state.attempt_number} failed ({brief(error)}); trying again")


def brief(error: BaseException | None) -> str:
    """The beginning of what an error says, in one line."""
    return " ".join(str(error).split())[:120] or type(error).__name__


def info(repo: str, revision: str | None = None, *, files: bool = False) -> Any:
    """What the Hub says of a repository at a revision, its files with sizes and checksums where asked for.

    Raises:
        BuildError: for every failure of the Hub or the way to it that did not pass.
    """
    with explained(repo, f"revision {revision or 'main'}"):
        return persistent()(api().model_info, repo, revision=revision, files_metadata=files)


@contextlib.contextmanager
def explained(repo: str, what: str) -> Iterator[None]:
    """Turn the client's errors inside the block into one line each.

    ``what`` names the thing that was asked for, as "revision main" or "file config.json".

    Raises:
        BuildError: for every failure of the Hub or the way to it.
    """
    try:
        yield
    except GatedRepoError as error:
        raise BuildError(
            f"{repo} is gated and this account has no access", page(repo), "ask for access on that page, set HF_TOKEN"
        ) from error
    except RevisionNotFoundError as error:
        raise BuildError(
            f"{what} does not exist in {repo}", page(repo), "name an existing branch, tag or commit"
        ) from error
    except RepositoryNotFoundError as error:
        raise BuildError(
            f"{repo} does not exist, or it is private", page(repo), "check the name; for a private one set HF_TOKEN"
        ) from error
    except LocalTokenNotFoundError as error:
        raise BuildError(f"no token for {what} of {repo}", page(repo), "set HF_TOKEN or run `hf auth login`") from error
    except LocalEntryNotFoundError as error:
        raise _unreachable(error.__cause__ or error, what) from error
    except EntryNotFoundError as error:
        raise BuildError(f"{what} does not exist in {repo}", page(repo), "check the repository's file list") from error
    except OfflineModeIsEnabled as error:
        raise BuildError("HF_HUB_OFFLINE is set", constants.ENDPOINT, f"unset it to get {what} of {repo}") from error
    except HfHubHTTPError as error:
        raise _status(error, repo, what) from error
    except (httpx2.HTTPError, ConnectionError, TimeoutError) as error:
        raise _unreachable(error, what) from error
    except OSError as error:
        if error.errno in core.FULL:
            raise core.disk_full(error.filename or constants.HF_HUB_CACHE) from error
        if SHORT not in str(error):
            raise
        sizes = re.search(r"of size (\d+) but has size (\d+)", str(error))
        short = f" ({sizes[2]} of {sizes[1]} bytes)" if sizes else ""
        raise BuildError(
            f"{what} of {repo} arrives short{short}", page(repo), "check the network, run again"
        ) from error


def _unreachable(error: BaseException, what: str) -> BuildError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return BuildError(f"the Hub cannot be reached for {what}: {reason}", constants.ENDPOINT, UNREACHABLE)


def _status(error: HfHubHTTPError, repo: str, what: str) -> BuildError:
    """One line for a status code that has no class of its own."""
    status = error.response.status_code if error.response is not None else 0
    said = " ".join((error.server_message or "").split())
    advice = {
        401: "set HF_TOKEN to a valid token, or log in with `hf auth login`",
        403: "use a token with the right to do this",
        412: "the repository moved meanwhile; run again",
        429: f"wait {asked_to_wait(error) or 'a few'} seconds, then run again",
    }.get(status, "run again later" if status >= 500 else "see the message")
    if status == 403 and QUOTA.search(said):
        advice = "free some of the owner's storage or get more (settings of the account, Billing), then run again"
    return BuildError(f"the Hub answered {status} for {what}{f': {said}' if said else ''}", page(repo), advice)


class Bytes(tqdm):  # type: ignore[type-arg]
    """Download progress as lines of text in place of a bar: see :class:`scripts.core.Progress`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what the client gives; always count, show at most every two seconds."""
        kwargs.pop("name", None)
        kwargs.update(disable=False, mininterval=core.Progress.EVERY, leave=True)
        self._lines = 0
        super().__init__(*args, **kwargs)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Say one line; nothing for a file that arrives at once."""
        done, total = int(self.n), int(self.total or 0)
        if done and (done < total or self._lines):
            self._lines += 1
            percent = 100 * done // total if total else 0
            core.say(f"{self.desc}: {percent:3d}% ({core.human(done)} of {core.human(total)})")

    def close(self) -> None:
        """Say the last line of a transfer that was shown at all; a bar would add a line break here."""
        if self.disable:
            return
        if self._lines:
            self.display()
        self.disable = True
        self._decr_instances(self)  # type: ignore[attr-defined]
