"""The few fixtures that every suite shares: a real broker, settings with topics of one's own, the recordings.

broker      one node for the whole run (`--broker HOST:PORT` names another one); tests share it, so they keep to
            topics under their own prefix and never stop it
own_broker  one node for one test, which may do to it what it likes
cluster3    three nodes for one module; a test that kills one starts it again
settings    `Settings` on `broker` with a unique prefix, an empty data folder and its topics in place
settings_on the same on any bootstrap, with changes: `settings_on(cluster3.bootstrap, replication=3, partitions=1)`
journey     `with journey("post_ready_replacement"):` is the journey of that capability; with `--support DIR` its end is recorded
            there, signed (`session-streams support trust --key-file DIR/journeys.pem` lets it count)
recordings  the folder of recorded transcripts, or a skip that says where it was looked for
"""

import concurrent.futures
import functools
import os
import re
import ssl
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest
from confluent_kafka.admin import AdminClient

from connectors.cli.kafka import LocalKafka
from streams.log import topics
from streams.settings import Settings
from tests.support.journeys import Journey, journey_of

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# Brokers of tests live for seconds: compiling their code well costs twice what they then do with it.
os.environ["JDK_JAVA_OPTIONS"] = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -XX:TieredStopAtLevel=1".strip()
# Roles are started hundreds of times: the first one compiles the modules for all.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Every client of httpx, and every `httpx.get`, reads the whole bundle of authorities anew: 20 ms, for addresses without TLS.
ssl.create_default_context = functools.cache(ssl.create_default_context)  # type: ignore[assignment]

REPOSITORY = Path(__file__).parent.parent
_KAFKA_FIXTURES = {"broker", "own_broker", "cluster3", "settings", "settings_on"}
_TOGETHER = {"recovery": r"tests/kafka/recovery/.*", "ingested": r"tests/recordings/test_(export|graph|sources)_recordings\.py"}
_SHARED = pytest.StashKey[LocalKafka]()


@dataclass(frozen=True)
class Broker:
    """Where the shared broker answers."""

    bootstrap: str


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--broker", metavar="HOST:PORT", help="use this Kafka instead of starting a local one")
    parser.addoption(
        "--support", metavar="DIR", type=Path, help="record there, signed, which journeys passed: evidence of what is supported"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Under xdist the controller starts the one broker, since it outlives its workers; they are told where it is.
    if config.getoption("numprocesses", None) and not config.getoption("--broker") and not config.getoption("collectonly"):
        config.stash[_SHARED] = LocalKafka.start()


def pytest_configure_node(node: object) -> None:
    config, workerinput = node.config, node.workerinput  # type: ignore[attr-defined]
    if _SHARED in config.stash:
        workerinput["broker"] = config.stash[_SHARED].bootstrap


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """By file, as `loadfile` says; what is set up once for several files goes to one worker."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return next((name for name, files in _TOGETHER.items() if re.fullmatch(files, file)), file)

    return Together(config, log)  # type: ignore[arg-type]


# xdist asks for these hooks; a run without xdist would refuse unknown ones.
pytest_configure_node = pytest.hookimpl(optionalhook=True)(pytest_configure_node)
pytest_xdist_make_scheduler = pytest.hookimpl(optionalhook=True)(pytest_xdist_make_scheduler)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _SHARED in config.stash:
        config.stash[_SHARED].stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & _KAFKA_FIXTURES:
            item.add_marker(pytest.mark.kafka)
        if "recordings" in fixtures:
            item.add_marker(pytest.mark.recordings)


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    named = request.config.getoption("--broker") or getattr(request.config, "workerinput", {}).get("broker")
    if named:
        yield Broker(named)
    else:
        with LocalKafka.start() as kafka:
            yield Broker(kafka.bootstrap)


@pytest.fixture
def own_broker() -> Iterator[LocalKafka]:
    with LocalKafka.start() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def cluster3() -> Iterator[LocalKafka]:
    with LocalKafka.start(3) as kafka:
        yield kafka


@pytest.fixture
def settings_on(tmp_path: Path) -> Iterator[Callable[..., Settings]]:
    made: list[Settings] = []

    def make(bootstrap: str, **changes: object) -> Settings:
        given = {"topic_prefix": f"t{uuid.uuid4().hex[:10]}.", "data_dir": tmp_path / f"data-{len(made)}", "partitions": 4}
        settings = Settings(bootstrap=bootstrap, **{**given, **changes})  # type: ignore[arg-type]
        topics.apply(settings)
        made.append(settings)
        return settings

    yield make
    for settings in made:
        # A shared broker stays small. One that the test has killed does not hold up the next test.
        admin = AdminClient({"bootstrap.servers": settings.bootstrap, "log_level": 0})
        deleted = admin.delete_topics([spec.name for spec in topics.declared(settings)], request_timeout=5)
        concurrent.futures.wait(deleted.values(), timeout=5)


@pytest.fixture
def settings(broker: Broker, settings_on: Callable[..., Settings]) -> Settings:
    return settings_on(broker.bootstrap)


@pytest.fixture
def journey(request: pytest.FixtureRequest) -> Journey:
    return journey_of(request.config.getoption("--support"), request.node.nodeid)


@pytest.fixture(scope="session")
def recordings() -> Path:
    folder = Path(os.environ.get("SESSION_STREAMS_RECORDINGS") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no recorded transcripts at {folder} (SESSION_STREAMS_RECORDINGS names the folder)")
    return folder
