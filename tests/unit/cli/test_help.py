"""What `--help` has to tell because nothing else does."""

from typer.testing import CliRunner

from connectors.cli.main import app
from connectors.edge.principal import SCOPES


def test_the_help_of_keys_create_lists_every_scope() -> None:
    shown = CliRunner().invoke(app, ["keys", "create", "--help"])
    assert shown.exit_code == 0
    told = "".join(shown.output.split())  # lines break within a word at its hyphen
    assert [scope for scope in SCOPES if scope not in told] == []
