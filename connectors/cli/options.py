"""Options that several commands share, each described once."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output: JSON, one value a line.")]
Broker = Annotated[str | None, typer.Option("--broker", metavar="HOST:PORT", help="The Kafka cluster. Default: environment, then up.json.")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Local data: stores, keyring, logs, up.json. Default: .session-streams")
]
Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="The gateway. Default: SESSION_STREAMS_URL, then up.json.")]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", metavar="KEY", help="Default: SESSION_STREAMS_API_KEY (it shows in no process list), then up.json."),
]
Host = Annotated[str, typer.Option("--host", help="Address to listen on.")]
LogFile = Annotated[Path | None, typer.Option("--log-file", metavar="FILE", help="Log there, bounded, instead of to stderr.")]
