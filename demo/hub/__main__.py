"""Serve a folder of repositories as a Hugging Face Hub on this machine, until interrupted."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from demo.hub.config import HubConfig
from demo.hub.server import HubServer
from scripts.core import parser, run, say


def _arguments() -> argparse.ArgumentParser:
    arguments = parser(__doc__)
    arguments.prog = "python -m demo.hub"
    arguments.add_argument("--root", type=Path, required=True, help="folder of the repositories (created if missing)")
    arguments.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    arguments.add_argument("--host", default="127.0.0.1", help="loopback address to listen on (default: %(default)s)")
    arguments.add_argument("--config", type=Path, help="JSON file with accounts and limits (default: demo accounts)")
    return arguments


def serve(options: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM, then print what was asked for.

    Raises:
        BuildError: the folder, the port or the configuration cannot be used.
    """
    config = HubConfig.load(options.config) if options.config else HubConfig()
    stop = threading.Event()

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask_to_stop)
    with HubServer(options.root, config, port=options.port, host=options.host) as hub:
        writer = next((key for key, account in config.accounts.items() if account.role == "write"), None)
        for name, value in hub.environment(writer).items():
            print(f"export {name}={value}")
        sys.stdout.flush()
        say(f"Hub of {options.root} at {hub.endpoint} (Ctrl-C stops it); accounts: {', '.join(config.accounts)}")
        while not stop.wait(0.5):
            if not hub.alive():
                break
        say(f"stopping\n{hub.log.summary()}")


if __name__ == "__main__":
    sys.exit(run(_arguments(), serve))
