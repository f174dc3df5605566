"""`python -m connectors.cli`: the same as the console script, for an environment without it on PATH."""

from connectors.cli.main import main

main()
