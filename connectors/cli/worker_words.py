"""What a runner tells, in lines for a person. Each is about one thing that happened, or about how the runner left."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from connectors.runner.worker import End

_EVIDENCE: Final = 'How to get evidence: docs/recovery.md, "Evidence for the runner"; what else can be done: docs/support.md'
_MISSING: Final = {
    "retained_bytes": "a fresh checkpoint of this very Run",
    "compatibility": "a checkpoint of this harness and environment",
    "recovery_frontier": "a history that can be read whole",
    "verification": "a current signed statement that this worker's lane was seen to replace attempts",
}
_SETTLED: Final = {
    "receipt": "the provider's receipt",
    "provider_lookup": "provider_lookup (the provider was asked, and had done it already)",
    "idempotency_mechanism": "idempotency_mechanism (sent again under the same identity: the provider makes one of the two)",
    "known": "what the log tells already",
    "denied": "a denial: nothing was sent",
}
_NOT_CLAIMABLE: Final = "runtime.attempt_not_claimable"
_UNREPLACEABLE: Final = "runtime.replacement_unavailable"


def in_words(what: str, told: Mapping[str, Any], *, approve: bool = False) -> str:
    """`approve`: somebody sits at a desk beside this runner, who answers."""
    match what:
        case "started":
            return f"session {told['session_id']} run {told['run_id']}"
        case "claimed":
            return f"generation {told['generation']}: {told['mode']}{_in_brackets(told['reason'])}"
        case "begun":
            native = "native state" if told["native"] else "no native state"
            files = f"{told['files']}{_in_brackets(told['unusable'])}"
            return f"  begins at step {told['steps']}; files: {files}, {native}, {told['history']} events of the conversation read"
        case "checkpoint":
            return f"  checkpoint after step {told['step']}, through {told['through_sequence']}"
        case "acted":
            return f"  step {told['step']}: the {told['provider']} action is settled by {_SETTLED.get(told['settled'], told['settled'])}"
        case "waits" if told["kind"] == "timer":
            return f"  step {told['step']} waits for a time, which is over by itself"
        case "waits":
            return f"  step {told['step']} waits for a person's answer: {_to_be_answered(told, approve)}"
        case "asks":
            return f"  step {told['step']} wants an approval: {_to_be_answered(told, approve)}"
        case "refused":
            return f"  {_refused(told)}"
        case _:
            return _ENDS[told["end"]](told)


def _to_be_answered(told: Mapping[str, Any], approve: bool) -> str:
    if approve:
        return "it is answered from here"
    if "action_digest" not in told:
        return f'POST {told["answer"]} with {{"content": ...}}, or start the runner with --approve'
    decided = f'{{"decision": "granted", "action_digest": "{told["action_digest"]}"}}'
    return f"POST {told['answer']} with {decided}, or start the runner with --approve"


def _refused(told: Mapping[str, Any]) -> str:
    if told["code"] == _NOT_CLAIMABLE:
        return "another attempt holds the Run: trying until it ends, or its lease runs out"
    if told["code"] == _UNREPLACEABLE and told["asked"] == "claim":
        return "the attempt before was ready: its place is taken on evidence only"
    return f"refused: {told['code']}{_in_brackets(', '.join(told['missing']))}"


def _completed(told: Mapping[str, Any]) -> str:
    settled = ", ".join(f"{count} by {how}" for how, count in sorted(told["settled"].items()))
    return f"the Run is completed{f'; actions settled: {settled}' if settled else ''}"


def _unreplaceable(told: Mapping[str, Any]) -> str:
    missing = "; ".join(f"{_MISSING.get(each, each)} ({each})" for each in told["missing"])
    return (
        f"the Run is left as it is: nobody takes the place of an attempt that was ready without evidence. Missing: {missing}. {_EVIDENCE}"
    )


def _indeterminate(told: Mapping[str, Any]) -> str:
    settle = f"POST /v1/sessions/{told['session_id']}/effects/{told['detail']}/reconcile"
    return (
        f"nobody can tell whether the provider has performed {told['detail']} ({told['cause']}). "
        f'Find out, settle it with {settle} (docs/recovery.md, "Effects"), and start again'
    )


_ENDS: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    End.COMPLETED: _completed,
    End.OVER: lambda told: f"nothing was left to do: the Run is over{_in_brackets(told['detail'])}",
    End.FENCED: lambda told: f"another worker has the Run, and this one has stopped{_in_brackets(told['detail'])}",
    End.UNREPLACEABLE: _unreplaceable,
    End.INDETERMINATE: _indeterminate,
    End.NOTHING: lambda told: f"nothing was done: {told['detail']} (--patience-s); none waits, or another attempt holds it",
    End.OTHER: lambda told: f"nothing was done: {told['detail']}",
}


def _in_brackets(text: str | None) -> str:
    return f" ({text})" if text else ""
