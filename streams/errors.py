"""Every error that crosses a module, named by what the one who meets it does next.

    StreamsError
      Invalid             caller: the request is malformed or out of bounds; change it        code request.*
      NotPermitted        caller: another key                                                  code auth.*
      NotFound            caller: nothing there (or nothing for this key)                      code resource.not_found
      Retriable           caller: the same request again after `retry_after_s`                 code service.*
        BrokerUnavailable, NotOwner, ProjectionBehind, Overloaded, KeyringUnavailable, BlobStoreUnavailable,
        RegistryUnavailable
        OutcomeUnknown    it may have taken effect: under the same Idempotency-Key only        code service.outcome_unknown
      ContentUnavailable  reader: show a typed gap                                             code content.*
      Fenced              process: drop the work at hand and join again
        TransactionAborted  nothing of the batch was written; rewind
      Fatal               process: leave; the log says at the next start what happened
      Corrupt             process: the store or the record cannot be trusted; rebuild or set aside
        StoreUnusable, RecordUnreadable
      Misconfigured       operator: the cluster or the settings do not fit

What a session refuses is not an exception: `streams.session.outcomes.Rejected` is a recorded value.
Misuse by our own code is RuntimeError or AssertionError, outside this tree.
"""


class StreamsError(Exception):
    """Base. `code` is stable; `detail` holds ids, names and limits, never content."""

    code = "service.internal"

    def __init__(self, detail: str, *, code: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        if code is not None:
            self.code = code


class Invalid(StreamsError):
    code = "request.invalid"


class NotPermitted(StreamsError):
    code = "auth.forbidden"


class NotFound(StreamsError):
    code = "resource.not_found"


class Retriable(StreamsError):
    code = "service.unavailable"

    def __init__(self, detail: str, *, retry_after_s: float = 1.0, code: str | None = None) -> None:
        super().__init__(detail, code=code)
        self.retry_after_s = retry_after_s


class BrokerUnavailable(Retriable):
    code = "service.broker_unavailable"


class NotOwner(Retriable):
    """The process does not own the partition, or its lease has lapsed: look for the owner again."""

    code = "service.not_owner"


class ProjectionBehind(Retriable):
    code = "service.projection_behind"


class Overloaded(Retriable):
    code = "service.overloaded"


class KeyringUnavailable(Retriable):
    code = "service.keyring_unavailable"


class BlobStoreUnavailable(Retriable):
    code = "service.blob_store_unavailable"


class RegistryUnavailable(Retriable):
    code = "service.registry_unavailable"


class OutcomeUnknown(Retriable):
    code = "service.outcome_unknown"


class ContentUnavailable(StreamsError):
    """`code` is content.expired, content.erased, content.omitted or content.unreadable."""

    code = "content.unreadable"


class Fenced(StreamsError):
    code = "service.fenced"


class TransactionAborted(Fenced):
    """The transaction was aborted: nothing of it is visible, its input is to be read again."""


class Fatal(StreamsError):
    """The client cannot continue; whether the last commit took effect is to be read from the log."""


class Corrupt(StreamsError):
    code = "service.corrupt"


class StoreUnusable(Corrupt):
    """A local store is torn, newer, or of another log: wipe and rebuild it."""


class RecordUnreadable(Corrupt):
    """A record cannot be decoded or does not satisfy its schema. `detail` is a reason code and a place."""


class Misconfigured(StreamsError):
    code = "service.misconfigured"
