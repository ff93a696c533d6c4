"""Logs as JSON lines on standard error, without texts or tokens."""

import json
import logging
import sys
from datetime import UTC, datetime

LOG = logging.getLogger("treelabel.serve")


class JsonLines(logging.Formatter):
    """Formats a record as a line of JSON; `extra={"fields": {...}}` adds to it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; of an exception its class alone, as its message may hold a text."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info is not None and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return json.dumps({**line, **getattr(record, "fields", {})}, ensure_ascii=False)


def log_json() -> None:
    """Write the logs of the service and of uvicorn to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("treelabel.serve", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
