"""The local Kafka: what `make demo`, `up` and these tests stand on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from connectors.cli.kafka import LocalKafka, jars
from streams.errors import BrokerUnavailable, Misconfigured

REPOSITORY = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.kafka


def create_topic(bootstrap: str, name: str, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=replicas)])[name].result(20)


def append(bootstrap: str, topic: str, *values: bytes) -> None:
    """Appends, and fails unless every value is acknowledged by all in-sync replicas."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 30000})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _message: failed.append(error) if error else None)
    assert producer.flush(40) == 0
    assert failed == []


def values(bootstrap: str, topic: str, count: int, timeout_s: float = 40) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    read: list[bytes] = []
    deadline = time.monotonic() + timeout_s
    while len(read) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            read.append(message.value())
    consumer.close()
    return read


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kafka"


def test_records_and_ports_survive_a_stop_and_a_start_in_the_same_folder(kept: Path) -> None:
    with LocalKafka.start(data_dir=kept) as kafka:
        bootstrap = kafka.bootstrap
        create_topic(bootstrap, "kept")
        append(bootstrap, "kept", b"one", b"two")
    with LocalKafka.start(data_dir=kept) as kafka:
        assert kafka.bootstrap == bootstrap
        assert values(bootstrap, "kept", 2) == [b"one", b"two"]
    with pytest.raises(Misconfigured, match="holds a cluster of 1 node"):
        LocalKafka.start(3, data_dir=kept)


def test_a_killed_node_comes_back_with_everything_acknowledged(own_broker: LocalKafka) -> None:
    create_topic(own_broker.bootstrap, "crash")
    append(own_broker.bootstrap, "crash", *(b"%d" % number for number in range(100)))
    own_broker.kill_node()
    assert own_broker.running == frozenset()
    own_broker.start_nodes(1)
    assert values(own_broker.bootstrap, "crash", 100) == [b"%d" % number for number in range(100)]


def test_three_nodes_go_on_acknowledging_when_one_is_killed(cluster3: LocalKafka) -> None:
    create_topic(cluster3.bootstrap, "three", replicas=3)
    append(cluster3.bootstrap, "three", b"before")
    cluster3.kill_node(2)
    append(cluster3.bootstrap, "three", b"during")
    cluster3.start_nodes(2)
    assert cluster3.running == {1, 2, 3}
    append(cluster3.bootstrap, "three", b"after")
    assert values(cluster3.bootstrap, "three", 3) == [b"before", b"during", b"after"]


def test_three_nodes_insist_on_two_copies(cluster3: LocalKafka) -> None:
    create_topic(cluster3.bootstrap, "copies", replicas=3)
    resource = ConfigResource(ResourceType.TOPIC, "copies")
    admin = AdminClient({"bootstrap.servers": cluster3.bootstrap})
    described = admin.describe_configs([resource])[resource].result(20)
    assert described["min.insync.replicas"].value == "2"
    assert described["unclean.leader.election.enable"].value == "false"


@pytest.mark.parametrize(
    ("setting", "value", "step"),
    [
        ("log.cleaner.dedupe.buffer.size", "many", "cannot be formatted"),
        ("metric.reporters", "no.such.Reporter", "ended while starting"),
    ],
)
def test_a_broker_that_does_not_come_up_says_why_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str, value: str, step: str
) -> None:
    """A setting that is refused, before or at the start: the error carries the last lines; no process or folder is left."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(BrokerUnavailable) as raised:
        LocalKafka.start(overrides={setting: value})
    assert step in raised.value.detail
    assert value in raised.value.detail
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_topic_is_not_created_by_naming_it(own_broker: LocalKafka) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": own_broker.bootstrap, "message.timeout.ms": 3000})
    producer.produce("typed-wrong", b"x", on_delivery=lambda error, _message: errors.append(error))
    producer.flush(20)
    assert errors
    assert errors[0] is not None
    assert "typed-wrong" not in AdminClient({"bootstrap.servers": own_broker.bootstrap}).list_topics(timeout=10).topics


def test_nothing_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL of whoever started the broker, from a thread that ended long before: the broker goes too."""
    script = (
        "import threading, time, sys\n"
        "from pathlib import Path\n"
        "from connectors.cli.kafka import LocalKafka\n"
        "started = []\n"
        "thread = threading.Thread(target=lambda: started.append(LocalKafka.start(data_dir=Path(sys.argv[1]))))\n"
        "thread.start(); thread.join()\n"
        "time.sleep(1)\n"
        "print(started[0].pid(1), flush=True)\n"
        "time.sleep(600)\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "kafka")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert starter.stdout is not None
    with starter.stdout:
        pid = int(starter.stdout.readline())
        assert is_alive(pid)
        starter.send_signal(signal.SIGKILL)
        starter.wait()
    deadline = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(pid)


def test_missing_java_and_maven_are_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SESSION_STREAMS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    jars.java.cache_clear()
    try:
        with pytest.raises(Misconfigured, match="install Java 17 or newer"):
            jars.java()
        with pytest.raises(Misconfigured, match="Maven is not on PATH: install it"):
            jars.jars()
        assert not (jars.cache_dir() / "jars").exists()
        old = tmp_path / "java"
        old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
        old.chmod(0o755)
        with pytest.raises(Misconfigured, match="is of version 11: install Java 17"):
            jars.java()
    finally:
        jars.java.cache_clear()


def test_two_processes_that_want_the_jars_at_once_download_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in for Maven that counts its calls and is slow: the second process waits and finds the first one's jars."""
    maven = tmp_path / "mvn"
    maven.write_text(
        "#!/bin/sh\n"
        f"echo called >> {tmp_path}/calls\n"
        'for argument; do case "$argument" in -DoutputDirectory=*) folder="${argument#*=}";; esac; done\n'
        'sleep 0.5; mkdir -p "$folder"; touch "$folder/kafka_2.13-x.jar"\n'
    )
    maven.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SESSION_STREAMS_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": str(REPOSITORY),
    }
    command = [sys.executable, "-c", "from connectors.cli.kafka import jars; print(*jars.jars().iterdir())"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    for process in both:
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert printed.strip().endswith("kafka_2.13-x.jar")
    assert (tmp_path / "calls").read_text().count("called") == 1
