"""A Hugging Face Hub on the loopback interface, for the unmodified huggingface_hub client.

Repositories live in a folder: content-addressed blobs, commits with git's own object ids, and one JSON state per
repository. ``HubServer`` serves it over HTTP, seeds it without HTTP, keeps an access log and breaks on demand.
"""

from demo.hub.accesslog import AccessLog, Entry
from demo.hub.config import Account, HubConfig
from demo.hub.faults import FaultRule
from demo.hub.server import HubServer
from demo.hub.store import Store

__all__ = ["AccessLog", "Account", "Entry", "FaultRule", "HubConfig", "HubServer", "Store"]
