"""The installation's Kafka settings in aiokafka's words."""

import ssl

import pytest

pytest.importorskip("aiokafka", reason="the extra `taps` is not installed")

from connectors.taps.clients import security_of
from streams.errors import Misconfigured


def test_plain_text_is_the_default() -> None:
    assert security_of({}) == {"security_protocol": "PLAINTEXT"}


def test_sasl_over_tls_is_translated() -> None:
    given = {
        "security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "tap", "sasl.password": "word",
        "socket.keepalive.enable": "true",
    }  # fmt: skip
    found = security_of(given)
    assert isinstance(found.pop("ssl_context"), ssl.SSLContext)
    assert found == {
        "security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "tap", "sasl_plain_password": "word",
    }  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [{"enable.ssl.certificate.verification": "false"}, {"security.protocol": "SASL_PLAINTEXT", "sasl.oauthbearer.config": "x"}],
    ids=str,
)
def test_a_setting_without_a_counterpart_is_refused_by_name(given: dict[str, str]) -> None:
    with pytest.raises(Misconfigured, match=next(reversed(given))):
        security_of(given)


def test_a_certificate_that_is_not_there_is_refused() -> None:
    with pytest.raises(Misconfigured, match="TLS"):
        security_of({"security.protocol": "SSL", "ssl.ca.location": "/nowhere/ca.pem"})
