"""Logs: one JSON object a line, with an event name, ids and positions; never content, keys or tokens.

To stderr, or to a file that is kept bounded. `streams` and the connectors only call `structlog.get_logger`.
"""

import logging
import logging.handlers
import sys
from pathlib import Path
from typing import Final

import structlog

_FILE_BYTES_MAX: Final = 10 * 1024 * 1024
_FILES_KEPT: Final = 2


def configure(file: Path | None = None, level: int = logging.INFO) -> None:
    """To `file` (10 MB, two older ones kept), else to stderr. Called once, by the process's entry."""
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(file, maxBytes=_FILE_BYTES_MAX, backupCount=_FILES_KEPT, encoding="utf-8")
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # What libraries log through the standard module takes the same form.
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # A line for each request says nothing that metrics do not, and its path would stand in the log.
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
