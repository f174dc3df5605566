"""Opens a Run for a transcript: what is asked, for which lane, and which transcript it is, pinned before anybody works on it."""

from collections.abc import Callable

from connectors.runner.plan import HARNESS, HARNESS_REVISION, Plan
from connectors.runner.worker import EXACT, LANE, TRANSCRIPT_PIN, Target
from session_streams import Client
from session_streams.models import encoded


def open_run(client: Client, plan_for: Callable[[str], Plan], *, session_id: str | None = None, lane: str = LANE) -> Target:
    """In a new session, or in the given one. Raises what the client raises."""
    session_id = session_id or client.create_session().session_id
    prompt = plan_for("run_" + "0" * 32).prompt
    head = encoded(
        {"lane": lane, "harness": HARNESS, "harness_revision": HARNESS_REVISION, "environment_revision": EXACT.environment_revision}
    )
    body = head[:-1] + b',"content":' + prompt.replace(b"\n", b" ") + b"}"
    json_body = {"content-type": "application/json"}
    run_id: str = client.request("POST", f"/v1/sessions/{session_id}/runs", body, headers=json_body).json()["run_id"]
    pin = {"pin_kind": TRANSCRIPT_PIN, "digest": plan_for(run_id).digest}
    client.append(session_id, {"type": "context.pinned", "run_id": run_id, "attributes": pin})
    return Target(session_id, run_id)
