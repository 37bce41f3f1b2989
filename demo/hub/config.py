"""Who may do what on the Hub, and its limits."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from scripts.core import BuildError, read_json

Role = Literal["read", "write", "none"]
ANY_NAMESPACE = "*"


@dataclass(frozen=True)
class Account:
    """One token and the user behind it.

    ``role`` is the token's: ``write`` reads and writes in the user's namespaces, ``read`` reads them, ``none`` (a
    fine-grained token without permissions) sees public repositories only. The user owns the namespace of their own
    name and those of ``orgs``; ``"*"`` among the orgs means every namespace.
    """

    name: str
    token: str
    role: Role
    orgs: tuple[str, ...] = ()

    def member_of(self, namespace: str) -> bool:
        """Whether the user belongs to a namespace."""
        return namespace == self.name or namespace in self.orgs or ANY_NAMESPACE in self.orgs


def _demo_accounts() -> dict[str, Account]:
    return {
        "write": Account("demo", "hf_demo_write_not_a_secret", "write", ("demo-org",)),
        "read": Account("demo", "hf_demo_read_not_a_secret", "read", ("demo-org",)),
        "none": Account("demo", "hf_demo_none_not_a_secret", "none", ("demo-org",)),
        "stranger": Account("stranger", "hf_demo_stranger_not_a_secret", "write"),
        "admin": Account("admin", "hf_demo_admin_not_a_secret", "write", (ANY_NAMESPACE,)),
    }


@dataclass(frozen=True)
class HubConfig:
    """Accounts by key, and limits in bytes or entries.

    ``lfs_over``: a file larger than this is stored as LFS whatever its name. ``multipart_over``: an LFS upload larger
    than this goes in parts of ``part_size``. ``page_size``/``expanded_page_size``: entries per page of a listing.
    ``storage``: most bytes of LFS objects in a repository. ``xet``: large files may come by Xet as well.
    """

    accounts: dict[str, Account] = field(default_factory=_demo_accounts)
    lfs_over: int = 10_000_000
    multipart_over: int = 256 << 20
    part_size: int = 64 << 20
    page_size: int = 1000
    expanded_page_size: int = 50
    max_body: int = 256 << 20
    storage: int = 1 << 40
    xet: bool = False

    def account(self, token: str) -> Account | None:
        """The account of a token, or None."""
        for account in self.accounts.values():
            if hmac.compare_digest(account.token.encode(), token.encode()):
                return account
        return None

    @classmethod
    def load(cls, path: Path) -> HubConfig:
        """Read a JSON file with the fields of this class; accounts are ``{key: {name, token, role, orgs}}``.

        Raises:
            BuildError: the file is no such object, or a key of it is unknown, missing or of the wrong kind.
        """
        do = "compare it with the fields of demo.hub.config.HubConfig and Account"
        data = read_json(path)
        if not isinstance(data, dict):
            raise BuildError("the Hub's configuration is not a JSON object", path, do)
        if unknown := sorted(set(data) - {item.name for item in fields(cls)}):
            raise BuildError(f"unknown key {unknown[0]!r} in the Hub's configuration", path, do)
        values: dict[str, Any] = {key: value for key, value in data.items() if key != "accounts"}
        for key, value in values.items():
            if key == "xet" and isinstance(value, bool):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                raise BuildError(f"{key} must be a whole number above zero, not {value!r}", path, do)
        if "accounts" in data:
            try:
                values["accounts"] = {
                    key: Account(**{**item, "orgs": tuple(item.get("orgs", ()))})
                    for key, item in data["accounts"].items()
                }
            except (TypeError, AttributeError) as error:
                raise BuildError(f"bad account in the Hub's configuration: {error}", path, do) from error
            for key, account in values["accounts"].items():
                if account.role not in ("read", "write", "none"):
                    raise BuildError(f"account {key!r} has the unknown role {account.role!r}", path, do)
        return cls(**values)
