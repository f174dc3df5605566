"""The interface document, held against a gateway that runs: schemathesis makes requests of it, good and bad ones.

No answer is outside the document: neither its status, media type, headers and body nor, where it is a refusal, its code. So
there is no 500, and a 503 only where one is documented; and what the document forbids is refused. Every operation gets a few
examples, the same ones each time. Ids and proofs of a proper form are replaced by those of something that is there.
"""

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from schemathesis import Case, CheckContext, Response, SerializationContext
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi import checks

from connectors.edge.fields import PATH_PARAMETERS
from connectors.gateway.agents.router import ROUTES as AGENT_ROUTES
from connectors.gateway.answers import NDJSON
from connectors.gateway.app import DOCUMENT
from connectors.gateway.snapshots import OCTETS
from streams.session.ids import is_id
from tests.conftest import Broker
from tests.support.gateway import check_documented, key, post
from tests.support.roles import Roles, installation

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

GENERATION = {
    "max-examples": 8, "deterministic": True, "database": "none", "no-shrink": True, "with-security-parameters": False,
    "allow-extra-parameters": False,
}  # fmt: skip
SCHEMA = schemathesis.openapi.from_dict(json.loads(DOCUMENT), config=schemathesis.Config.from_dict({"generation": GENERATION}))
DIGEST = "sha256:" + "0" * 64
REPORT, POSITION, SEQUENCE = "Session-Streams-Report", "Session-Streams-Position", "Session-Streams-Expected-Sequence"
KEY = "Idempotency-Key"
LONGEST_WAIT_MS = 30_000
MOMENT = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,}Z")
MOMENTS_REAL_EVERY = 7
"""So often is enough, and each costs a decision; odd, so that it is not always the same headers that such a request has."""
AGENTS = {route.path.replace(":id", "{checkpoint_id}") for route in AGENT_ROUTES}
FORMS = {
    KEY: re.compile("[ -~]{1,255}"),
    REPORT: re.compile("run_[0-9a-f]{32};[1-9][0-9]{0,17};task_[0-9a-f]{32}(;[0-9]{1,18})?"),
    POSITION: re.compile("[A-Za-z0-9._-]{1,249}:[0-9]{1,10}:[0-9]{1,19}"),
    SEQUENCE: re.compile("[0-9]{1,18}"),
}


class Target:
    """What an operation's parameters name: things of a session of their own, or an agent's checkpoint, made anew once one of them was
    changed."""

    def __init__(self, client: httpx.Client, wanted: set[str], *, agents: bool) -> None:
        self._client, self._wanted, self._agents = client, wanted, agents
        self._names: dict[str, str] = {}

    def names(self) -> dict[str, str]:
        self._names = self._names or self._made()
        return self._names

    def changed(self) -> None:
        self._names = {}

    def _made(self) -> dict[str, str]:
        if self._agents:
            body = {"subject_id": "openapi", "kind": "cursor", "state": 1, "ttl_seconds": 3600}
            saved = self._client.post("/v1/checkpoints", json=body).json()["data"]
            return {"checkpoint_id": saved["checkpoint_id"], "agent_id": saved["agent_id"]}
        wanted, session = self._wanted, post(self._client, "/v1/sessions", {"subject": "openapi"}, status=201)
        names = {"session_id": session["session_id"], POSITION: session["position"]}

        def make(path: str, body: Any = None, status: int = 201, **headers: str) -> Any:
            at = f"/v1/sessions/{session['session_id']}{path}"
            return post(self._client, at, body, status=status, session_streams_position=session["position"], **headers)

        if "subject" in wanted:
            # A session without content has made no secret, so nothing but the outside id leads to its subject.
            names["subject"] = "openapi"
        if "erasure_id" in wanted:
            erased = self._client.delete(f"/v1/sessions/{session['session_id']}", headers=key())
            names["erasure_id"] = erased.json()["erasure_id"]
        if "turn_id" in wanted:
            names["turn_id"] = make("/turns")["turn_id"]
        if "wait_id" in wanted:
            names["wait_id"] = make("/waits", {"kind": "human"})["wait_id"]
        if "approval_id" in wanted:
            names["approval_id"] = make("/approvals", {"action_digest": DIGEST})["approval_id"]
        if wanted & {"run_id", REPORT, "checkpoint_id"}:
            names["run_id"] = make("/runs")["run_id"]
        if REPORT in wanted:
            run = f"/runs/{names['run_id']}"
            grant = make(f"{run}/claim", status=200)
            names["generation"] = str(grant["generation"])
            proof = f"{grant['run_id']};{grant['generation']};{grant['native_task_id']}"
            last = make(f"{run}/attempts/1/ready", status=200, session_streams_report=f"{proof};{grant['run_sequence']}")
            if "effect_id" in wanted:
                effect = {"provider": "test", "request_digest": DIGEST, "action_digest": DIGEST}
                last = make("/effects", effect, session_streams_report=f"{proof};{last['run_sequence']}")
                names["effect_id"] = last["effect_id"]
            if "checkpoint_id" in wanted:
                event = self._client.get(f"/v1/sessions/{session['session_id']}/events", params={"limit": 1}).json()["events"][0]
                body = {
                    "through_sequence": 1, "through_event_id": event["event_id"], "continuation": {"kind": "event_log_rebuild"},
                    "snapshot": {"provider": "test", "reference": "here"},
                }  # fmt: skip
                last = make("/checkpoints", body, session_streams_report=f"{proof};{last['run_sequence']}")
                names["checkpoint_id"] = last["checkpoint_id"]
            names[REPORT] = f"{proof};{last['run_sequence']}"
        return names


class Site:
    """A gateway with a key for everything in it."""

    def __init__(self, roles: Roles) -> None:
        self.url = roles.url
        authorized = {"authorization": f"Bearer {roles.key()}"}
        self.http = requests.Session()
        self.http.headers.update(authorized)
        self._client = httpx.Client(base_url=self.url, headers=authorized, timeout=20)
        self._targets: dict[str, Target] = {}
        self._count, self._moments = itertools.count(), itertools.count()

    def target(self, case: Case) -> Target:
        label = case.operation.label
        if label not in self._targets:
            agents = case.operation.path in AGENTS
            self._targets[label] = Target(self._client, {each.name for each in case.operation.iter_parameters()}, agents=agents)
        return self._targets[label]

    def fill_in(self, case: Case) -> None:
        """Puts what is there in the place of what is only well-formed, and short waits in that of long ones. A key is used once; every
        second time headers that need not be there are left out, so that what is optional is seen both ways."""
        names = self.target(case).names()
        for name, value in list(case.path_parameters.items()):
            kind = PATH_PARAMETERS.get(name)
            proper = str(value).isdecimal() and int(value) > 0 if kind is None else is_id(str(value), kind[0])
            if name == "subject":
                proper = not is_meant_to_be_bad(case) and next(self._count) % 2 == 0
            if proper and name in names:
                case.path_parameters[name] = names[name]
        if isinstance(case.body, dict) and isinstance(case.body.get("wait_ms"), int) and 0 <= case.body["wait_ms"] <= LONGEST_WAIT_MS:
            case.body["wait_ms"] %= 50
        if not is_meant_to_be_bad(case) and isinstance(case.body, dict) and next(self._moments) % MOMENTS_REAL_EVERY == 0:
            # What a pattern makes up is a time of no calendar, and refused for that alone.
            case.body = with_real_moments(case.body)
        if isinstance(case.body, dict) and isinstance(case.body.get("agent_id"), str) and "agent_id" in names and next(self._count) % 2:
            # A checkpoint of anybody else is not there.
            case.body["agent_id"] = names["agent_id"]
        required = {each.name for each in case.operation.iter_parameters() if each.is_required}
        for name, form in FORMS.items():
            given, may_be_bad = case.headers.get(name), header_may_be_bad(case, name)
            if given is None or (may_be_bad and form.fullmatch(str(given)) is None):
                continue
            if name == KEY:
                case.headers[KEY] = f"{given[:200]}~{next(self._count)}"
            elif name not in required and not may_be_bad and next(self._count) % 2:
                del case.headers[name]
            elif name in names:
                case.headers[name] = names[name]

    def close(self) -> None:
        self.http.close()
        self._client.close()


def with_real_moments(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: with_real_moments(each) for name, each in value.items()}
    if isinstance(value, list):
        return [with_real_moments(each) for each in value]
    return "2026-01-02T03:04:05.678Z" if isinstance(value, str) and MOMENT.fullmatch(value) else value


def header_may_be_bad(case: Case, name: str) -> bool:
    """Whether a header is, or may be, what is meant to be wrong with a request."""
    assert case.meta is not None
    return case.meta.is_negative_at(ParameterLocation.HEADER) and getattr(case.meta.phase.data, "parameter", None) in (None, name)


def is_meant_to_be_bad(case: Case) -> bool:
    """Without regard to headers that were bad by accident, and are replaced."""
    assert case.meta is not None
    place = getattr(case.meta.phase.data, "parameter_location", None)
    return case.meta.generation.mode.is_negative and (place is None or case.meta.is_negative_at(place))


@schemathesis.serializer(NDJSON, OCTETS)
def as_text(_: SerializationContext, value: object) -> bytes:
    """What is made up for NDJSON is text, and where it is to be bad, another JSON value."""
    return value.encode(errors="surrogatepass") if isinstance(value, str) else json.dumps(value).encode()


@pytest.fixture(scope="module")
def site(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with installation(broker.bootstrap, tmp_path_factory.mktemp("openapi"), graph=True, agents=True, custodian=True) as roles:
        made = Site(roles)
        assert made.http.get(f"{roles.url}/openapi.json", timeout=20).content == DOCUMENT
        yield made
        made.close()


def documented_to_the_last_code(context: CheckContext, response: Response, case: Case) -> None:
    """As the other tests of the gateway hold their answers against the document."""
    request = httpx.Request(response.request.method, response.request.url)
    headers = {name: values[0] for name, values in response.headers.items()}
    check_documented(httpx.Response(response.status_code, headers=headers, content=response.content, request=request))


@SCHEMA.parametrize()
def test_every_answer_is_one_that_the_document_tells_of(case: Case, site: Site) -> None:
    refusal_is_due = [checks.negative_data_rejection] if is_meant_to_be_bad(case) else []
    site.fill_in(case)
    response = case.call(base_url=site.url, session=site.http, timeout=20)
    if response.status_code < 300 and case.method in ("POST", "DELETE"):
        site.target(case).changed()
    assert response.status_code != 500
    case.validate_response(
        response,
        checks=[
            checks.status_code_conformance,
            checks.content_type_conformance,
            checks.response_headers_conformance,
            checks.response_schema_conformance,
            documented_to_the_last_code,
            *refusal_is_due,
        ],
    )
