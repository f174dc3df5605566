"""Who performs actions, asked before a Run depends on it; and the one for trials, as a process."""

import subprocess
import sys
from pathlib import Path

import pytest

from connectors.runner.acting import NoProvider, Provider
from connectors.runner.plan import Act, Plan, make_plan, read_records
from connectors.runner.provider import DemoProvider
from tests.support.examples import made_up_id

SAMPLE = Path(__file__).parents[3] / "connectors" / "runner" / "sample.jsonl"
TESTED = 4
"""A step of the sample: an action."""


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(read_records(SAMPLE), made_up_id("run"))


def test_a_provider_is_asked_before_anything_depends_on_it() -> None:
    with DemoProvider() as demo, Provider(demo.url) as provider:
        provider.require()
        assert demo.performed == {}
    with Provider("http://127.0.0.1:9", timeout_s=1) as provider, pytest.raises(NoProvider):
        provider.require()


def test_a_provider_that_cannot_be_asked_has_to_be_there_and_nothing_more() -> None:
    with DemoProvider() as demo, Provider(f"{demo.url}/v1/actions/x?", knows_identities=False) as elsewhere:
        elsewhere.require()
    with Provider("http://127.0.0.1:9", knows_identities=False, timeout_s=1) as provider, pytest.raises(NoProvider):
        provider.require()


def test_the_demonstrations_provider_serves_a_runner_as_a_process_of_its_own(plan: Plan) -> None:
    step = plan.steps[TESTED]
    assert isinstance(step, Act)
    argv = [sys.executable, "-m", "connectors.runner.provider", "--port", "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[3].rstrip(";")
            with Provider(url) as provider:
                provider.require()
                assert provider.look_up("eff_1") is None
                assert provider.send("eff_1", step) == provider.send("eff_1", step) == provider.look_up("eff_1")
        finally:
            process.terminate()
        assert process.stdout.readline() == "1 actions performed\n"
