"""A worker against a gateway: it claims, reports, uploads and tells of checkpoints, over plain HTTP."""

from typing import Any

import httpx

from tests.support.gateway import key, message, post


class Worker:
    """Holds a Run of a session and keeps its report up to date."""

    def __init__(self, client: httpx.Client, session_id: str, run_id: str, grant: dict[str, Any]) -> None:
        self.client, self.session_id, self.run_id, self.grant = client, session_id, run_id, grant
        self.session = f"/v1/sessions/{session_id}"
        self.run = f"{self.session}/runs/{run_id}"
        self.attempt = f"{self.run}/attempts/{grant['generation']}"
        self.position = grant["run_sequence"]

    @property
    def report(self) -> str:
        return f"{self.run_id};{self.grant['generation']};{self.grant['native_task_id']};{self.position}"

    def post(self, path: str, body: Any = None, *, status: int = 200, **headers: str) -> Any:
        answer = post(self.client, path, body, status=status, session_streams_report=self.report, **headers)
        self.position = answer.get("run_sequence", self.position)
        return answer

    def say(self, text: str) -> dict[str, Any]:
        """The event, as it is read again."""
        answer = self.post(f"{self.session}/events", message(text, run_id=self.run_id))
        return event_at(self.client, self.session_id, answer["last_sequence"], answer["position"])

    def upload(self, content: bytes, **headers: str) -> httpx.Response:
        given = {"content-type": "application/octet-stream", "session-streams-report": self.report, **key()}
        given.update({name.replace("_", "-"): value for name, value in headers.items()})
        return self.client.post(f"{self.session}/snapshots", content=content, headers=given)

    def uploaded(self, content: bytes) -> str:
        response = self.upload(content)
        assert response.status_code == 201, response.text
        return str(response.json()["upload_id"])

    def conversation(self, *, client: httpx.Client | None = None, **query: Any) -> httpx.Response:
        """Read with `client`, where another one is given."""
        headers = {"session-streams-report": self.report}
        return (client or self.client).get(f"{self.attempt}/conversation", params=query, headers=headers)

    def boundary(self, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Of the session as it stands, or at an event of it."""
        event = event or last_event(self.client, self.session_id)
        return {"through_sequence": event["sequence"], "through_event_id": event["event_id"]}

    def checkpoint(self, *, native: bytes | None = None, snapshot: bytes = b"snapshot", status: int = 201, **more: Any) -> Any:
        """Of the session as it stands, unless `more` names another boundary."""
        continuation = {"kind": "event_log_rebuild"} if native is None else {"kind": "native", "upload_id": self.uploaded(native)}
        body = {**self.boundary(), "snapshot": {"upload_id": self.uploaded(snapshot)}, "continuation": continuation, **more}
        return self.post(f"{self.session}/checkpoints", body, status=status)


def opened(client: httpx.Client, session_id: str, **body: Any) -> str:
    """A new Run."""
    return str(post(client, f"/v1/sessions/{session_id}/runs", {"lane": "main", **body}, status=201)["run_id"])


def claimed(client: httpx.Client, session_id: str, run_id: str, **body: Any) -> Worker:
    return Worker(client, session_id, run_id, post(client, f"/v1/sessions/{session_id}/runs/{run_id}/claim", body))


def worker_of(client: httpx.Client, session_id: str, **body: Any) -> Worker:
    """Of a new Run."""
    return claimed(client, session_id, opened(client, session_id, **body))


def event_at(client: httpx.Client, session_id: str, sequence: int, position: str | None = None) -> dict[str, Any]:
    """Once the table has what was answered at `position`."""
    headers = {} if position is None else {"session-streams-position": position}
    page = client.get(f"/v1/sessions/{session_id}/events", params={"after_sequence": sequence - 1, "limit": 1}, headers=headers).json()
    return dict(page["events"][0])


def last_event(client: httpx.Client, session_id: str) -> dict[str, Any]:
    return event_at(client, session_id, client.get(f"/v1/sessions/{session_id}").json()["sequence"])
