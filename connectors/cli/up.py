"""`up`: everything on this machine, until Ctrl-C."""

import sys
import time

from connectors.cli.console import OK, emit_json, remark
from connectors.cli.found import Up
from connectors.cli.interrupts import Stopped, raising
from connectors.cli.local import LocalInstallation, LocalOptions

_LOOK_EVERY_S = 0.2


def run_up(options: LocalOptions, *, as_json: bool) -> int:
    """Returns the exit status once everything has stopped. Raises StreamsError where something never comes up."""
    installation = LocalInstallation(options, remark)
    with raising(installation.kill):
        try:
            up = installation.start()
            _announce(up, as_json=as_json)
            while True:
                time.sleep(_LOOK_EVERY_S)
                installation.watch()
        except Stopped:
            remark("stopping (again for at once)")
        finally:
            installation.stop()
    remark(f"stopped; data stays in {installation.settings.data_dir}")
    return OK


def _announce(up: Up, *, as_json: bool) -> None:
    if as_json:
        emit_json(up)
        return
    print(f"gateway  {up.gateway}   (document: {up.gateway}/openapi.json)")
    print(f"broker   {up.broker}")
    if up.tap is not None:
        print(f"tap      {up.tap}")
    print(f"API key  {up.api_key}   (workspace {up.workspace_id})")
    sys.stdout.flush()
    remark(
        "everything answers; Ctrl-C stops. Other commands find this installation by themselves: session-streams ingest PATH, sessions, tail"
    )
