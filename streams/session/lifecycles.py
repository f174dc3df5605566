"""What may follow what: the lifecycle of each thing in a session, drawn and as the table that is enforced.

A table reads: event type -> status before -> status after. What is settled has no way out, so it is never reopened.
`=>` marks what the authority appends itself as the consequence of an event.
"""

from collections.abc import Mapping
from typing import Final

Transitions = Mapping[str, Mapping[str, str]]

# Session.            session.created            session.closed
#                 o ------------------> open ------------------> closed

OPEN: Final = "open"
CLOSED: Final = "closed"
SESSION: Final[Transitions] = {"session.closed": {OPEN: CLOSED}}

# Turn.               turn.started               turn.completed
#                 o ------------------> started ------------------> completed
#
# A Turn's Runs have their own lifecycle: one may outlast its Turn, none may begin in a completed one.

STARTED: Final = "started"
COMPLETED: Final = "completed"
TURN: Final[Transitions] = {"turn.completed": {STARTED: COMPLETED}}

# Run.
#        run.accepted
#      o -----------> accepted ------------------------------------.
#                        |  attempt.started => run.started         |
#                        v                                         |
#         .-------> running --------.                              |
#         |            |            | wait.opened => run.waiting   |
#         |            |            v                              |
#         '---------------------- waiting                          |
#  last wait closed => run.resumed  |                              |
#                      |            |                              |
#     run.completed | run.failed | run.cancelled        run.failed | run.cancelled
#                      v            v                              v
#                completed       failed       cancelled                       (settled)
#
# A new generation of its attempt changes nothing here: the Run goes on where it stood.

ACCEPTED: Final = "accepted"
RUNNING: Final = "running"
WAITING: Final = "waiting"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"
RUN: Final[Transitions] = {
    "run.started": {ACCEPTED: RUNNING},
    "run.waiting": {RUNNING: WAITING},
    "run.resumed": {WAITING: RUNNING},
    "run.completed": {RUNNING: COMPLETED, WAITING: COMPLETED},
    "run.failed": {ACCEPTED: FAILED, RUNNING: FAILED, WAITING: FAILED},
    "run.cancelled": {ACCEPTED: CANCELLED, RUNNING: CANCELLED, WAITING: CANCELLED},
}

# RunAttempt, one generation of it.
#                                         .--- attempt.ready: the harness was started again
#        attempt.started    attempt.ready |    (a new native task; the old one is fenced)
#      o --------------> started -----> ready <'
#                           |             |
#                  attempt.failed | attempt.fenced | attempt.replaced
#                           v             v
#                        failed        fenced        replaced
#                           |                           ^
#                           '---- attempt.replaced -----'
#
# The next generation starts only where the one before is failed, fenced or replaced. A claim over a lapsed lease of a
# generation that never became ready fails it first. One that was ready is replaced on evidence only.

READY: Final = "ready"
REPLACED: Final = "replaced"
FENCED: Final = "fenced"
ATTEMPT: Final[Transitions] = {
    "attempt.ready": {STARTED: READY, READY: READY},
    "attempt.failed": {STARTED: FAILED, READY: FAILED},
    "attempt.fenced": {STARTED: FENCED, READY: FENCED},
    "attempt.replaced": {STARTED: REPLACED, READY: REPLACED, FAILED: REPLACED},
}
LIVE_ATTEMPT: Final = frozenset({STARTED, READY})
"""Statuses in which an attempt may report, while its lease lasts."""

# Wait.               wait.opened                wait.answered
#                 o ------------------> opened -+------------------> answered
#                                               | wait.expired
#                                               '------------------> expired

OPENED: Final = "opened"
ANSWERED: Final = "answered"
EXPIRED: Final = "expired"
WAIT: Final[Transitions] = {"wait.answered": {OPENED: ANSWERED}, "wait.expired": {OPENED: EXPIRED}}

# Approval.        approval.requested            approval.granted
#                 o ------------------> requested -+---------------> granted
#                                                  | approval.denied
#                                                  '---------------> denied
#
# It authorises one exact frozen action until it expires, and says nothing about what the provider did.

REQUESTED: Final = "requested"
GRANTED: Final = "granted"
DENIED: Final = "denied"
APPROVAL: Final[Transitions] = {"approval.granted": {REQUESTED: GRANTED}, "approval.denied": {REQUESTED: DENIED}}

# Effect.
#       effect.dispatched
#      o ----------------> dispatched ------------------------ effect.receipt_accepted ---.
#                              |       \                                                  |
#            effect.indeterminate       '--- effect.reconciled (by its own attempt) ----. |
#       (its attempt or Run ended =>)                                                   v v
#                              |                                                      settled
#                              v                                                        ^ ^
#                        indeterminate ------------------ effect.reconciled ------------' |
#                              '------- effect.receipt_accepted (by a later attempt) -----'

DISPATCHED: Final = "dispatched"
INDETERMINATE: Final = "indeterminate"
SETTLED: Final = "settled"
EFFECT: Final[Transitions] = {
    "effect.indeterminate": {DISPATCHED: INDETERMINATE},
    "effect.receipt_accepted": {DISPATCHED: SETTLED, INDETERMINATE: SETTLED},
    "effect.reconciled": {DISPATCHED: SETTLED, INDETERMINATE: SETTLED},
}

# Child work.        child.started              child.settled
#                 o ------------------> started ------------------> settled

CHILD: Final[Transitions] = {"child.settled": {STARTED: SETTLED}}

TRANSITIONS: Final[Mapping[str, Transitions]] = {
    "session": SESSION,
    "turn": TURN,
    "run": RUN,
    "attempt": ATTEMPT,
    "wait": WAIT,
    "approval": APPROVAL,
    "effect": EFFECT,
    "child": CHILD,
}

FINAL: Final[Mapping[str, frozenset[str]]] = {
    "session": frozenset({CLOSED}),
    "turn": frozenset({COMPLETED}),
    "run": frozenset({COMPLETED, FAILED, CANCELLED}),
    "attempt": frozenset({FENCED, REPLACED}),
    "wait": frozenset({ANSWERED, EXPIRED}),
    "approval": frozenset({GRANTED, DENIED}),
    "effect": frozenset({SETTLED}),
    "child": frozenset({SETTLED}),
}
"""Statuses without a way out."""

SETTLED_RUN: Final = FINAL["run"]
