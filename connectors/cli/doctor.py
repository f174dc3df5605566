"""`doctor`: looks at everything a running installation rests on. Each finding says what it saw and what to do.

Reads only. A check that cannot be made is a finding as well; the others go on.
"""

import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Final

from connectors.cli import doctor_retention, found
from connectors.cli.findings import Finding, failed, ok, warning
from connectors.cli.kafka.probe import finalized_features
from connectors.registry import verify_numbers
from streams.custody.sqlite_keyring import LOCAL_KEY_NAME
from streams.errors import Misconfigured, StreamsError
from streams.log import inspect
from streams.log.client import MAX_RECORD_BYTES
from streams.log.inspect import BrokerFacts
from streams.log.owners import GroupOwners
from streams.log.topics import Topics, declared, verify
from streams.settings import Settings

_GIB: Final = 1024**3
_KAFKA_4_0: Final = 25
"""The level of `metadata.version` that Apache Kafka 4.0 brought."""
_TRANSACTIONS_V2: Final = 2
_LAG_MANY: Final = 100_000
_CLOCK_OFF_S: Final = 3.0


def examine(settings: Settings) -> Iterator[Finding]:
    """The findings, one after the other as they are made."""
    try:
        brokers = inspect.brokers(settings)
    except StreamsError as error:
        yield failed("brokers", error.detail, f"start Kafka at {settings.bootstrap}, run `session-streams up`, or give --broker")
    else:
        yield ok("brokers", ", ".join(f"{broker.broker_id} at {broker.host}:{broker.port}" for broker in brokers))
        yield from _features(brokers[0])
        yield from _broker_settings(settings, brokers)
        for check, examiner in (
            ("topics", _topics),
            ("registry", _registry),
            ("authority", _authority),
            ("projector", _projector),
            ("graph-projector", _graphs),
            ("custodian", _custodian),
            ("agents", _agents),
            ("erasures", doctor_retention.erasures),
            ("holders", doctor_retention.holders),
        ):
            yield from _made(check, settings, examiner)
    yield from _disk(settings)
    yield from _keyring(settings)
    yield from _made("gateway", settings, _gateway)


def _registry(settings: Settings) -> Iterator[Finding]:
    verify_numbers(settings)
    yield ok("registry", settings.registry_url or "the file of this release")


def _made(check: str, settings: Settings, examiner: Callable[[Settings], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from examiner(settings)
    except StreamsError as error:
        yield failed(check, error.detail, "see the message; `session-streams up` logs below the data folder's logs/")


def _features(broker: BrokerFacts) -> Iterator[Finding]:
    features = finalized_features(broker.host, broker.port)
    if features is None:
        yield warning(
            "broker version", "the broker tells its features on plain listeners only", "check for Apache Kafka 4.0 or newer by hand"
        )
        return
    metadata, transactions = features.get("metadata.version", 0), features.get("transaction.version", 0)
    seen = f"metadata.version {metadata}, transaction.version {transactions}"
    if metadata < _KAFKA_4_0:
        yield failed("broker version", seen, "Apache Kafka 4.0 or newer is needed; upgrade it")
    elif transactions < _TRANSACTIONS_V2:
        yield warning(
            "broker version",
            seen,
            f"kafka-features.sh upgrade --feature transaction.version={_TRANSACTIONS_V2}: it fences hung transactions",
        )
    else:
        yield ok("broker version", seen)


def _broker_settings(settings: Settings, brokers: tuple[BrokerFacts, ...]) -> Iterator[Finding]:
    replicas, in_sync = (3, 2) if len(brokers) >= 3 else (1, 1)
    session_ms, transaction_ms = int(settings.member_session_timeout_s * 1000), int(settings.transaction_timeout_s * 1000)
    # name, what it must satisfy, in words, and whether the guarantees need it
    rules: tuple[tuple[str, Callable[[str], bool], str, bool], ...] = (
        ("offsets.topic.replication.factor", lambda v: int(v) >= replicas, f"at least {replicas}", True),
        ("transaction.state.log.replication.factor", lambda v: int(v) >= replicas, f"at least {replicas}", True),
        ("transaction.state.log.min.isr", lambda v: int(v) >= in_sync, f"at least {in_sync}", True),
        ("unclean.leader.election.enable", lambda v: v == "false", "false", True),
        ("replica.fetch.max.bytes", lambda v: len(brokers) == 1 or int(v) >= MAX_RECORD_BYTES, f"at least {MAX_RECORD_BYTES}", False),
        ("transaction.max.timeout.ms", lambda v: int(v) >= transaction_ms, f"at least {transaction_ms}", True),
        ("group.min.session.timeout.ms", lambda v: int(v) <= session_ms, f"at most {session_ms}", True),
        ("group.max.session.timeout.ms", lambda v: int(v) >= session_ms, f"at least {session_ms}", True),
        ("auto.create.topics.enable", lambda v: v == "false", "false: a name typed wrong makes a topic otherwise", False),
        (
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            lambda v: int(v) <= 10_000,
            "at most 10000: readers wait that much longer for a killed writer",
            False,
        ),
    )
    wrong = False
    for broker in brokers:
        for name, fits, wanted, needed in rules:
            value = broker.settings.get(name)
            if value is None or fits(value):
                continue
            wrong = True
            finding = failed if needed else warning
            yield finding("broker settings", f"broker {broker.broker_id}: {name}={value}", f"set it to {wanted}")
    if not wrong:
        yield ok("broker settings", f"{len(rules)} settings fit on {len(brokers)} broker{'s' if len(brokers) > 1 else ''}")


def _topics(settings: Settings) -> Iterator[Finding]:
    try:
        verify(settings)
    except Misconfigured as error:
        yield failed("topics", error.detail, "`session-streams topics plan` shows the difference, `topics apply` makes what is missing")
    existing = inspect.topics(settings)
    ours = {spec.name: existing[spec.name] for spec in declared(settings) if spec.name in existing}
    leaderless = [name for name, facts in ours.items() if facts.leaderless]
    short = [name for name, facts in ours.items() if facts.short]
    if leaderless:
        yield failed("topics", f"partitions without a leader: {', '.join(leaderless)}", "bring the brokers back that hold them")
    if short:
        yield warning("topics", f"fewer replicas in sync than assigned: {', '.join(short)}", "bring the missing broker back")
    if ours and not leaderless and not short:
        counts = ", ".join(f"{name} {facts.partitions}x{facts.replicas}" for name, facts in sorted(ours.items()))
        yield ok("topics", f"{counts} (partitions x replicas), all in sync")


def _authority(settings: Settings) -> Iterator[Finding]:
    topic = Topics(settings.topic_prefix).commands
    yield from _owned("authority", settings, topic)
    lags = [lag for lag in inspect.group_lag(settings, "authority", topic, settings.partitions).values() if lag is not None]
    behind = sum(lags)
    if behind > _LAG_MANY:
        yield warning(
            "authority lag", f"{behind:,} commands wait", "see its log; another `session-streams authority` shares the partitions"
        )
    else:
        yield ok("authority lag", f"{behind:,} commands wait")


def _projector(settings: Settings) -> Iterator[Finding]:
    yield from _owned("projector", settings, Topics(settings.topic_prefix).events)


def _graphs(settings: Settings) -> Iterator[Finding]:
    topic = Topics(settings.topic_prefix).events
    yield from _owned("graph-projector", settings, topic, group="graph")
    behind = sum(lag for lag in inspect.group_lag(settings, "graph", topic, settings.partitions).values() if lag is not None)
    if behind > _LAG_MANY:
        to_do = "see its log; another `session-streams graph-projector` shares the partitions"
        yield warning("graph lag", f"{behind:,} events wait", to_do)


def _custodian(settings: Settings) -> Iterator[Finding]:
    topic = Topics(settings.topic_prefix).events
    yield from _owned("custodian", settings, topic)
    behind = sum(lag for lag in inspect.group_lag(settings, "custodian", topic, settings.partitions).values() if lag is not None)
    if behind > _LAG_MANY:
        to_do = "leases lapse late; see its log; another `session-streams custodian` shares the partitions"
        yield warning("custodian lag", f"{behind:,} events wait", to_do)


def _agents(settings: Settings) -> Iterator[Finding]:
    topic = Topics(settings.topic_prefix).agent_commands
    yield from _owned("agents", settings, topic)
    behind = sum(lag for lag in inspect.group_lag(settings, "agents", topic, settings.partitions).values() if lag is not None)
    if behind > _LAG_MANY:
        to_do = "saves are answered late; see its log; another `session-streams agents` shares the partitions"
        yield warning("agents lag", f"{behind:,} commands wait", to_do)


def _owned(role: str, settings: Settings, topic: str, *, group: str | None = None) -> Iterator[Finding]:
    taken = frozenset[int]().union(*GroupOwners(settings, group or role, topic).assigned().values())
    missing = sorted(set(range(settings.partitions)) - taken)
    if missing:
        yield failed(role, f"nobody owns partitions {missing}", f"start `session-streams {role}` (or `up`), and look into its log")
    else:
        yield ok(role, f"all {settings.partitions} partitions are owned")


def _disk(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir.absolute()
    while not folder.exists():
        folder = folder.parent
    usage = shutil.disk_usage(folder)
    seen = f"{usage.free / _GIB:.1f} GiB free of {usage.total / _GIB:.0f} at {settings.data_dir}"
    if usage.free < _GIB:
        yield failed("disk", seen, "free some space: stores and a local Kafka stop when it is full")
    elif usage.free < 5 * _GIB:
        yield warning("disk", seen, "free some space soon, or give --data-dir on another disk")
    else:
        yield ok("disk", seen)


def _keyring(settings: Settings) -> Iterator[Finding]:
    key = settings.data_dir / "keyring" / LOCAL_KEY_NAME
    if not key.exists():
        yield ok("keyring", f"none yet in {settings.data_dir}; the first role that needs it makes it")
    elif key.stat().st_mode & 0o077:
        yield failed("keyring", f"{key} may be read by others", f"chmod 600 {key}")
    else:
        yield ok("keyring", f"{key}: keep a copy apart from the data; without it no content opens")


def _gateway(settings: Settings) -> Iterator[Finding]:
    up = found.read_up(settings.data_dir)
    if up is None:
        yield warning(
            "gateway", f"no up.json in {settings.data_dir}", "run `session-streams up`, or look at the gateway's /readyz yourself"
        )
        return
    try:
        with urllib.request.urlopen(f"{up.gateway}/readyz", timeout=5) as answer:
            shown = answer.headers.get("Date")
    except urllib.error.HTTPError as error:
        with error:
            yield failed("gateway", f"{up.gateway}/readyz answers {error.code}: {error.read(500).decode(errors='replace')}", "see its log")
        return
    except OSError as error:
        yield failed("gateway", f"{up.gateway} does not answer: {error}", "run `session-streams up` again")
        return
    yield ok("gateway", f"{up.gateway} is ready")
    if shown is not None:
        yield _clock(parsedate_to_datetime(shown).timestamp())


def _clock(theirs_s: float) -> Finding:
    # The header counts whole seconds.
    apart_s = time.time() - theirs_s - 0.5
    if abs(apart_s) > _CLOCK_OFF_S:
        return warning(
            "clock", f"{apart_s:+.1f} s apart from the gateway's", "synchronise both machines: expiry days and time-outs follow them"
        )
    return ok("clock", "agrees with the gateway's")
