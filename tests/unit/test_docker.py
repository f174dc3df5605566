"""What can be known of the image and the compose file without a Docker engine: form, and agreement with the code."""

import base64
import dataclasses
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from connectors.cli.kafka.jars import kafka_version
from connectors.cli.kafka.properties import guarantees
from connectors.cli.main import app
from connectors.gateway.limits import GatewayLimits
from streams.settings import Settings

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "docker" / "Dockerfile"
COMPOSE = ROOT / "docker" / "compose.yaml"
SERVICES: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
BROKERS = {name: service for name, service in SERVICES.items() if name.startswith("broker-")}
OURS = {name: service for name, service in SERVICES.items() if name not in BROKERS}
ROLES = {"authority", "projector", "graph-projector", "custodian", "agents", "gateway"}
PREFIX = "SESSION_STREAMS_"
# How a broker of this cluster finds itself and the others; everything else about it is a guarantee.
WIRING = {
    "node.id", "process.roles", "controller.quorum.voters", "controller.listener.names", "inter.broker.listener.name",
    "listener.security.protocol.map", "listeners", "advertised.listeners", "log.dirs", "heap.opts",
}  # fmt: skip


def run(*command: str, given: str | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)


def hadolint(text: str) -> str:
    checked = run(str(Path(sysconfig.get_path("scripts")) / "hadolint"), "-", given=text)
    assert (checked.returncode == 0) == (checked.stdout == "")
    return checked.stdout


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Dockerfile and its arguments, continued lines joined."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


def arguments_of(instruction: str) -> list[str]:
    return [rest for word, rest in instructions() if word == instruction]


def broker_settings(service: dict[str, Any]) -> dict[str, str]:
    """By the image's rule: KAFKA_A_B is a.b."""
    return {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in service["environment"].items()
        if name.startswith("KAFKA_")
    }


# -- the image --------------------------------------------------------------------------------------------------------


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    assert hadolint(DOCKERFILE.read_text()) == ""
    assert "DL3006" in hadolint("FROM python\n"), "it looks, and finds what is there"


def test_base_images_are_pinned_and_name_no_host() -> None:
    images = [rest.split()[0] for rest in arguments_of("FROM")]
    assert images == ["python:3.11-slim"] * 2


def test_the_image_runs_as_nobody_in_particular_and_takes_the_role_as_its_argument() -> None:
    user = arguments_of("USER")
    assert len(user) == 1
    assert re.fullmatch(r"[1-9][0-9]{3,}:[1-9][0-9]{3,}", user[0])
    assert arguments_of("ENTRYPOINT") == ['["session-streams"]']
    last_from = max(index for index, (word, _) in enumerate(instructions()) if word == "FROM")
    assert [word for word, _ in instructions()[last_from:]].index("USER") > 0


def test_the_health_check_is_in_the_image() -> None:
    script = re.search(r'"(/\S+healthcheck\.py)"', " ".join(arguments_of("HEALTHCHECK")))
    assert script is not None
    assert f"docker/healthcheck.py {script[1]}" in arguments_of("COPY")
    assert f"--from=build {Path(script[1]).parent} {Path(script[1]).parent}" in arguments_of("COPY")


def test_an_image_holds_what_it_is_made_of_and_nothing_else() -> None:
    """The context is an allow-list: local keys and stores cannot slip in."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {source for rest in arguments_of("COPY") if not rest.startswith("--from") for source in rest.split()[:-1]}
    assert copied == allowed
    assert all((ROOT / source).exists() for source in copied - {"README.md"})


# -- compose ----------------------------------------------------------------------------------------------------------


def compose_problems(path: Path) -> str:
    checked = run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path))
    return "" if checked.returncode == 0 else checked.stdout + checked.stderr


def test_the_compose_file_fits_the_compose_specification(tmp_path: Path) -> None:
    assert compose_problems(COMPOSE) == ""
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text().replace("depends_on:", "depend_on:"))
    assert "depend_on" in compose_problems(wrong), "it looks, and finds what is there"


def test_what_services_refer_to_is_there() -> None:
    document = yaml.safe_load(COMPOSE.read_text())
    for name, service in SERVICES.items():
        for other, wanted in service.get("depends_on", {}).items():
            assert other in SERVICES, f"{name} waits for {other}"
            if wanted["condition"] == "service_healthy":
                assert "test" in SERVICES[other]["healthcheck"]
        for volume in service["volumes"]:
            assert volume.split(":")[0] in document["volumes"]
    build = OURS["gateway"]["build"]
    assert (COMPOSE.parent / build["context"] / build["dockerfile"]).resolve() == DOCKERFILE


@pytest.mark.parametrize("name", sorted(BROKERS))
def test_a_broker_keeps_what_the_launchers_brokers_keep(name: str) -> None:
    """The guarantees are the launcher's, value for value, and nothing of its settings for small machines comes along."""
    settings = broker_settings(SERVICES[name])
    assert {setting: value for setting, value in settings.items() if setting not in WIRING} == guarantees(len(BROKERS))
    assert settings.keys() >= WIRING


def test_brokers_are_of_the_version_that_the_launcher_runs() -> None:
    assert {service["image"] for service in BROKERS.values()} == {f"apache/kafka:{kafka_version()}"}


def test_three_brokers_form_one_cluster() -> None:
    assert len(BROKERS) == 3
    wired = {name: broker_settings(service) for name, service in BROKERS.items()}
    voters = ",".join(f"{settings['node.id']}@{name}:9093" for name, settings in wired.items())
    assert {settings["controller.quorum.voters"] for settings in wired.values()} == {voters}
    assert len({settings["node.id"] for settings in wired.values()}) == 3
    assert len({service["volumes"][0] for service in BROKERS.values()}) == 3
    clusters = {service["environment"]["CLUSTER_ID"] for service in BROKERS.values()}
    assert [len(base64.urlsafe_b64decode(f"{cluster}==")) for cluster in clusters] == [16]


def test_a_broker_is_found_from_the_roles_and_from_this_machine() -> None:
    ports = set()
    for name, service in BROKERS.items():
        settings = broker_settings(service)
        advertised = dict(each.split("://") for each in settings["advertised.listeners"].split(","))
        listening = dict(each.split("://") for each in settings["listeners"].split(","))
        assert advertised["PLAINTEXT"] == f"{name}{listening['PLAINTEXT']}"
        outside = advertised["HOST"].removeprefix("127.0.0.1:")
        assert service["ports"] == [f"127.0.0.1:{outside}{listening['HOST']}"]
        assert settings["listener.security.protocol.map"].count(":") == len(listening)
        ports.add(outside)
    assert len(ports) == 3
    bootstrap = {service["environment"]["SESSION_STREAMS_BOOTSTRAP"] for service in OURS.values()}
    assert bootstrap == {",".join(f"{name}:9092" for name in BROKERS)}


def test_every_role_runs_and_two_authorities_do() -> None:
    roles = [service["command"][0] for service in OURS.values() if service["command"][0] in ROLES]
    assert set(roles) == ROLES
    assert roles.count("authority") == 2
    instances = [
        (service["command"][0], service["environment"]["SESSION_STREAMS_INSTANCE"])
        for service in OURS.values()
        if service["command"][0] in ROLES
    ]
    assert len(set(instances)) == len(instances), "two processes under one name would fence each other"


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_service_runs_a_command_that_exists_with_options_that_it_has(name: str) -> None:
    command: Any = typer.main.get_command(app)
    words = list(OURS[name]["command"])
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_roles_start_after_the_topics_and_the_topics_after_all_brokers() -> None:
    assert OURS["topics-init"]["command"] == ["topics", "apply"]
    assert OURS["topics-init"]["depends_on"] == {name: {"condition": "service_healthy"} for name in BROKERS}
    for service in OURS.values():
        if service["command"][0] in ROLES:
            assert service["depends_on"] == {"topics-init": {"condition": "service_completed_successfully"}}
    assert OURS["topics-init"]["healthcheck"] == {"disable": True}, "it is done before anybody would ask"


def test_a_projector_listens_under_the_name_that_gateways_are_told() -> None:
    for name, service in OURS.items():
        if service["command"][0] in ("projector", "graph-projector", "agents"):
            options = dict(zip(service["command"][1::2], service["command"][2::2], strict=True))
            assert options["--host"] == service["hostname"] == name
            assert int(options["--port"]) > 0, "the health check must know it"


def test_nothing_is_open_to_other_machines() -> None:
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_roles_run_without_privileges_on_a_file_system_that_they_cannot_write() -> None:
    for service in OURS.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


# -- settings ---------------------------------------------------------------------------------------------------------


def known_variables() -> set[str]:
    names = {field.name for field in dataclasses.fields(Settings)} - {"kafka"}
    return {f"{PREFIX}{name.upper()}" for name in names} | {
        f"{PREFIX}GATEWAY_{field.name.upper()}" for field in dataclasses.fields(GatewayLimits)
    }


def test_every_variable_that_is_set_is_a_setting() -> None:
    """A name typed wrong would be ignored without a word."""
    named = set(re.findall(rf"\b{PREFIX}[A-Z_]+", COMPOSE.read_text() + DOCKERFILE.read_text()))
    assert named
    assert {name for name in named if not name.startswith(f"{PREFIX}KAFKA_")} <= known_variables()


@pytest.mark.parametrize("name", sorted(OURS))
def test_settings_are_read_as_they_are_meant(name: str) -> None:
    environment = {key: value for key, value in OURS[name]["environment"].items() if value is not None}
    assert all(isinstance(value, str) for value in environment.values()), "YAML would hand on a number in its own form"
    settings = Settings.from_environment(environment)
    assert settings.replication == len(BROKERS)
    assert settings.partitions >= 2
    assert f"{PREFIX}DATA_DIR={OURS[name]['volumes'][0].partition(':')[2]}" in " ".join(arguments_of("ENV"))
