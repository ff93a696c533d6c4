"""Running the app with uvicorn."""

import gc
import socket
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from treelabel.core.errors import TreelabelError
from treelabel.serve.app import create_app
from treelabel.serve.logs import LOG, log_json
from treelabel.serve.options import ServeOptions

# Seconds that requests have to end after the signal to stop.
GRACE = 30
# Python's own, as objects of one generation that start a collection.
GARBAGE_THRESHOLDS = 700, 10, 10
# Connections that the system holds while the service is busy.
BACKLOG = 2048


def run_server(folders: Sequence[Path], options: ServeOptions, host: str, port: int) -> None:
    """Serve models until a signal comes; requests that are being answered are finished.

    Parameters
    ----------
    folders
        Model folders.
    options
        Settings of the service.
    host, port
        Where to listen; port 0 takes a free one, and the log says which.
    """
    app = create_app(folders, options)
    # The command line looks for garbage rarely, as most commands end soon; models stay, and are not looked at again.
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    gc.freeze()
    with _listen(host, port) as listener:
        log_json()
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listener.getsockname()[1]}"
        names = [served.id for served in app.state.service.store]
        LOG.info("serving", extra={"fields": {"address": address, "models": names}})
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE,
            ws="none",
        )
        uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    # The protocol is named, as asyncio asks for it before it turns off Nagle's algorithm (40 ms a request).
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise TreelabelError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from None
    return listener
