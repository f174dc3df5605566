"""Every route that asks for a key: what a scope and a subject keep out, and that what is hidden is not to be told from what
is not there."""

from typing import Any, Final

import httpx
import pytest

from connectors.edge.principal import ANY_SCOPE, SCOPES
from connectors.gateway import bodies
from connectors.gateway.app import ROUTES
from connectors.gateway.capsule_bodies import CreateCapsule
from connectors.gateway.limits import GatewayLimits
from connectors.gateway.route import Route
from streams.errors import NotOwner
from tests.support.capsule_world import asks
from tests.support.gateway import OTHER_WORKSPACE, World, base64_of, key, new_session, post, world

ABSENT: Final = "sess_" + "0" * 32
DIGEST: Final = "sha256:" + "0" * 64
IDS: Final = {
    "turn_id": "turn_" + "0" * 32, "run_id": "run_" + "0" * 32, "generation": "1", "wait_id": "wait_" + "0" * 32,
    "approval_id": "appr_" + "0" * 32, "effect_id": "eff_" + "0" * 32, "checkpoint_id": "ckpt_" + "0" * 32,
    "erasure_id": "ers_" + "0" * 32, "subject": "subj_" + "0" * 32,
    "capsule_id": "cap_" + "0" * 32, "import_id": "cimp_" + "0" * 32,
}  # fmt: skip
BODIES: Final[dict[Any, dict[str, Any]]] = {
    bodies.FailAttempt: {"reason": "broken"},
    bodies.OpenWait: {"kind": "human"},
    bodies.RequestApproval: {"action_digest": DIGEST},
    bodies.DecideApproval: {"decision": "granted", "action_digest": DIGEST},
    bodies.Steer: {"kind": "note", "target_run_id": IDS["run_id"]},
    bodies.DispatchEffect: {"provider": "mail", "request_digest": DIGEST, "action_digest": DIGEST},
    bodies.ReceiveReceipt: {"receipt_digest": DIGEST},
    bodies.ReconcileEffect: {"evidence_kind": "provider_lookup", "outcome": "succeeded"},
    bodies.ClaimNext: {"lanes": ["main"]},
    bodies.ReplaceAttempt: {
        "replaces": 1,
        "frontier_sequence": 1,
        "harness_revision": "a",
        "environment_revision": "a",
        "driver": "a",
        "sandbox_provider_revision": "a",
        "policy": "a",
        "execution_target": "a",
    },
    bodies.CreateCheckpoint: {
        "through_sequence": 1,
        "through_event_id": "evt_" + "0" * 32,
        "continuation": {"kind": "event_log_rebuild"},
        "snapshot": {"provider": "a", "reference": "b"},
    },
    bodies.ForkSession: {"at_event": "evt_" + "0" * 32},
    bodies.SetPolicy: {"mode": "standard", "content_window_days": 1, "checkpoint_window_s": 60},
    CreateCapsule: asks("sthr_" + "0" * 32, IDS["checkpoint_id"]),
    bodies.DeadLetterBody: {"source_kind": "claude-code", "reason": "malformed", "place": "1", "record": base64_of(b"{")},
}
"""What a body needs; every other one may be empty, but for an event's type."""

GUARDED: Final = [pytest.param(route, id=route.name) for route in ROUTES if route.scope is not None]
SCOPED: Final = [pytest.param(route, id=route.name) for route in ROUTES if route.scope not in (None, ANY_SCOPE)]
OF_A_SESSION: Final = [pytest.param(route, id=route.name) for route in ROUTES if "{session_id}" in route.path]


def ask(client: httpx.Client, route: Route, session: str) -> httpx.Response:
    path = route.path.format(session_id=session, **IDS)
    report = {name: schema["enum"][0] for name, (schema, _) in route.headers.items()}
    report |= {} if route.report == "none" else {"session-streams-report": f"{IDS['run_id']};1;task_{'0' * 32};0"}
    if route.method in ("GET", "DELETE"):
        return client.request(route.method, path, headers={**({} if route.method == "GET" else key()), **report})
    body = {"type": "message.appended"} if route.reads_body_itself else BODIES.get(route.body, {})
    if route.body is None:
        return client.post(path, content=b"bytes", headers={**key(), **report, "content-type": next(iter(route.other_body_types))})
    return client.request(route.method, path, json=body, headers={**key(), **report})


def told(response: httpx.Response, session: str) -> tuple[int, str, set[str]]:
    """Everything that a caller may compare, but for the session's id."""
    return response.status_code, response.text.replace(session, "<session>"), response.headers.keys() - {"date"}


@pytest.fixture(scope="module")
def hers(client: httpx.Client) -> tuple[str, str]:
    """A session of one subject, which this gateway remembers, and the other subject's id."""
    session = new_session(client, subject="mia_li_3668")
    other = post(client, "/v1/sessions", {"subject": "noah_1"}, status=201)["subject_id"]
    return session, other


@pytest.mark.parametrize("route", SCOPED)
def test_a_key_that_holds_every_scope_but_the_routes_own_is_refused(shared: World, hers: tuple[str, str], route: Route) -> None:
    for needed in (route.scope, route.also_scope or route.scope):
        client = shared.client(*(scope for scope in SCOPES if scope not in (needed, "admin")))
        for session in (hers[0], ABSENT, "mia_li_3668"):
            response = ask(client, route, session)
            assert (response.status_code, response.json()["code"]) == (403, "auth.scope")


@pytest.mark.parametrize("route", GUARDED)
def test_nobody_gets_in_without_a_key(shared: World, hers: tuple[str, str], route: Route) -> None:
    with httpx.Client(base_url=shared.url) as client:
        response = ask(client, route, hers[0])
    assert (response.status_code, response.json()["code"]) == (401, "auth.missing")


@pytest.mark.parametrize("route", OF_A_SESSION)
@pytest.mark.parametrize("stranger", ["another subject", "another workspace"])
def test_a_hidden_session_is_answered_as_one_that_is_not_there(shared: World, hers: tuple[str, str], route: Route, stranger: str) -> None:
    session, other = hers
    client = shared.client(subject_id=other) if stranger == "another subject" else shared.client(workspace_id=OTHER_WORKSPACE)
    hidden = told(ask(client, route, session), session)
    assert hidden == told(ask(client, route, ABSENT), ABSENT)
    assert hidden[0] == 404


@pytest.mark.parametrize("route", OF_A_SESSION)
@pytest.mark.parametrize("stranger", ["another subject", "another workspace"])
def test_the_owner_is_asked_for_a_hidden_session_as_for_one_that_is_not_there(
    shared: World, hers: tuple[str, str], route: Route, stranger: str
) -> None:
    """What a gateway remembers for one caller tells another one nothing, by its answer or by how soon it comes."""
    session, other = hers
    client = shared.client(subject_id=other) if stranger == "another subject" else shared.client(workspace_id=OTHER_WORKSPACE)
    shared.owners.failure = shared.graph_owners.failure = NotOwner("away")
    try:
        hidden = told(ask(client, route, session), session)
        assert hidden == told(ask(client, route, ABSENT), ABSENT)
    finally:
        shared.owners.failure = shared.graph_owners.failure = None
    assert hidden[0] == 503
    asked = []
    for each in (session, ABSENT):
        before = len(shared.owners.positions)
        ask(client, route, each)
        asked.append(len(shared.owners.positions) - before)
    assert asked[0] == asked[1]


@pytest.mark.parametrize("query", ["", f"?around=run_{'0' * 32}", "?around=" + ABSENT, "?through_sequence=1", "?through_sequence=99999"])
def test_a_graph_tells_nothing_of_a_hidden_session(tmp_path_factory: pytest.TempPathFactory, query: str) -> None:
    with world(tmp_path_factory.mktemp("small"), limits=GatewayLimits(graph_items_max=1)) as made:
        client = made.client()
        created = post(client, "/v1/sessions", {"subject": "mia_li_3668"}, status=201)
        session = created["session_id"]
        post(client, f"/v1/sessions/{session}/threads", {}, status=201)
        assert client.get(f"/v1/sessions/{session}/graph").json()["code"] == "graph.too_large"
        other = made.client(subject_id=post(client, "/v1/sessions", {"subject": "noah_1"}, status=201)["subject_id"])
        hidden = told(other.get(f"/v1/sessions/{session}/graph{query}"), session)
        assert hidden == told(other.get(f"/v1/sessions/{ABSENT}/graph{query}"), ABSENT)
        assert hidden[0] == 404
