"""The demonstration of a death and a recovery: a worker dies between an action and its receipt, and another one goes on.

1 a Run is opened for a short transcript, and a worker takes it     3 once that is vouched for, another worker goes on from the last
2 it dies with SIGKILL; nobody may take the place of an attempt       checkpoint, and finds out at the provider what had happened
  that was ready, as long as nobody has shown that this works       4 what was said, written and done is whole, and each once
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from connectors.cli.console import OK, REFUSED
from connectors.cli.found import Up
from connectors.cli.running import plans_of
from connectors.cli.worker_words import in_words
from connectors.runner.desk import Desk
from connectors.runner.plan import STEPS_MAX, Act, Plan, Say
from connectors.runner.provider import DemoProvider
from connectors.runner.starting import open_run
from connectors.runner.worker import EXACT, Target
from connectors.runner.workspace import MARKER
from connectors.support.capabilities import REPLACEMENT
from connectors.support.catalogue import STATEMENTS, TRUSTED
from connectors.support.journeys import record
from connectors.support.statement import Evidence, ExactTuple
from connectors.support.support import running_release
from connectors.support.trust import change_trust
from session_streams import Client
from streams.custody.signing import SigningKey
from streams.settings import Settings

TRANSCRIPT: Final = Path(__file__).parent.parent / "runner" / "sample.jsonl"
_LEASE_MS: Final = 3000
_PATIENCE_S: Final = 20
_PROCESS_S: Final = 60


def show_recovery(up: Up, settings: Settings, say: Callable[[str], None]) -> bool:
    """Whether everything came out as it should. Raises what the client raises."""
    plan_for = plans_of(TRANSCRIPT, STEPS_MAX)
    with Client(up.gateway, up.api_key) as client, DemoProvider() as provider:
        target = open_run(client, plan_for)
        plan = plan_for(target.run_id)
        act = next(step for step in plan.steps if isinstance(step, Act) and step.action.approval)
        with Desk(client, target.session_id):

            def run(name: str, *arguments: str) -> int:
                return _run(up, settings, provider, target, name, *arguments)

            say(f"a worker takes the Run; it is killed in step {act.index}, after the provider acted and before anybody was told")
            died = run("one", "--die-at", f"{act.index}:sent")
            say("another worker comes; it has to be refused, since nobody has shown yet that this worker can be replaced")
            refused = run("two")
            say("the demonstration signs that itself, and trusts itself: now the other worker goes on, and asks the provider")
            _vouch(settings)
            ended = run("two")
        held = (died, refused, ended) == (-signal.SIGKILL, REFUSED, OK)
        return held and _show(client, provider, plan, target, settings.data_dir / "demo-two")


def _run(up: Up, settings: Settings, provider: DemoProvider, target: Target, name: str, *arguments: str) -> int:
    argv = [
        sys.executable, "-m", "connectors.cli", "runner", str(TRANSCRIPT), "--workspace", str(settings.data_dir / f"demo-{name}"),
        "--provider", provider.url, "--session", target.session_id, "--run", target.run_id, "--lease-ms", str(_LEASE_MS),
        "--patience-s", str(_PATIENCE_S), "--snapshot-every", "5", "--json", *arguments,
    ]  # fmt: skip
    environment = {**os.environ, "SESSION_STREAMS_URL": up.gateway, "SESSION_STREAMS_API_KEY": up.api_key}
    print(f"worker {name}:", flush=True)
    ended = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, timeout=_PROCESS_S, check=False, text=True)
    for told in map(json.loads, ended.stdout.splitlines()):
        # How a refusal comes about is in the last line; a timer of the lease is nothing to look at.
        if told["told"] != "refused":
            print(f"  {in_words(told['told'], told, approve=True)}", flush=True)
    return ended.returncode


def _vouch(settings: Settings) -> None:
    key_file = settings.data_dir / "demo.pem"
    exact = ExactTuple(
        release=running_release(), driver=EXACT.driver, sandbox_provider_revision=EXACT.sandbox_provider_revision, policy=EXACT.policy,
        execution_target=EXACT.execution_target, harness_revision=EXACT.harness_revision, environment_revision=EXACT.environment_revision,
    )  # fmt: skip
    evidence = Evidence(test="session-streams demo")
    record(settings.support_path / STATEMENTS, SigningKey.at(key_file), REPLACEMENT, exact, "passed", evidence)
    change_trust(settings.support_path / TRUSTED, key_file=key_file)


def _show(client: Client, provider: DemoProvider, plan: Plan, target: Target, workspace: Path) -> bool:
    events = list(client.events(target.session_id))
    said = [event.attributes["source_index"] for event in events if event.type == "message.appended"]
    whole = said == [step.record for step in plan.steps if isinstance(step, Say)]
    acts = Counter(step.digest for step in plan.steps if isinstance(step, Act))
    files = sorted(path.relative_to(workspace).as_posix() for path in workspace.rglob("*") if path.is_file() and path.name != MARKER)
    generations = [event.raw["attempt_generation"] for event in events if event.type == "attempt.started"]
    print(f"said: {len(said)} messages, {'each once and in order' if whole else 'NOT as recorded'}")
    print(f"done: {provider.performed.total()} actions, {'each once' if provider.performed == acts else 'NOT each once'}")
    print(f"written: {', '.join(files)}")
    print(f"attempts: generations {', '.join(map(str, generations))} of one Run, {len(events)} events without a gap")
    return whole and provider.performed == acts
