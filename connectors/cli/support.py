"""`session-streams support`: the support catalogue of this installation's folder, without a gateway."""

import re
from pathlib import Path
from typing import Annotated

import typer

from connectors.cli import found
from connectors.cli.console import OK, REFUSED, emit_json, print_table, remark
from connectors.cli.options import DataDir, Json
from streams.errors import Misconfigured

support_app = typer.Typer(
    help="What was proven of this release, by which journey, and whose word counts.", no_args_is_help=True, rich_markup_mode=None
)


@support_app.command("show")
def support_show(data_dir: DataDir = None, as_json: Json = False) -> None:
    """Show each capability on each exact tuple with its evidence, as a gateway of this folder would."""
    from connectors.support.support import Support

    rows = Support(found.settings_of_up(data_dir)).rows()
    if as_json:
        for row in rows:
            emit_json(row)
        return
    columns = [
        "capability",
        "posture",
        "release",
        "driver",
        "sandbox",
        "policy",
        "target",
        "harness",
        "environment",
        "journey",
        "observed",
        "missing",
    ]
    table = []
    for row in rows:
        exact = row.tuple
        on = ["-"] * 7 if exact is None else [
            exact.release, exact.driver, exact.sandbox_provider_revision, exact.policy, exact.execution_target,
            exact.harness_revision or "-", exact.environment_revision or "-",
        ]  # fmt: skip
        seen = "-" if row.evidence is None else f"{row.evidence.observed_at:%Y-%m-%dT%H:%M:%SZ}"
        table.append([row.capability, row.posture, *on, row.journey or "-", seen, " ".join(row.readiness.missing) or "-"])
    print_table(columns, table)


@support_app.command("verify")
def support_verify(
    file: Annotated[Path | None, typer.Argument(help="Lines of signed observations. Default: those of the folder.")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Check every line against the keys that are trusted here. Status 1 where one counts as nothing."""
    from connectors.support.catalogue import STATEMENTS, TRUSTED, observations, trusted_keys

    folder = found.settings_of_up(data_dir).support_path
    path = file or folder / STATEMENTS
    try:
        counted, ignored = observations(path, trusted_keys(folder / TRUSTED))
    except OSError as error:
        raise Misconfigured(f"{path}: {error.strerror}") from error
    if as_json:
        emit_json({"verified": len(counted), "ignored": [{"line": each.line, "reason": each.reason} for each in ignored]})
    else:
        for each in ignored:
            print(f"{path}:{each.line}: {each.reason}")
        print(f"{len(counted)} verified, {len(ignored)} count as nothing")
    raise typer.Exit(REFUSED if ignored else OK)


@support_app.command("trust")
def support_trust(
    public: Annotated[str | None, typer.Argument(help="A public key: 64 hex digits. Without any, the trusted ones are listed.")] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="Trust the key of this file, which is made if it is not there: for those who run the journeys.")
    ] = None,
    remove: Annotated[str | None, typer.Option(help="Id of a key that is to count no longer.")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Say whose observations count."""
    from connectors.support.catalogue import TRUSTED
    from connectors.support.trust import change_trust

    path = found.settings_of_up(data_dir).support_path / TRUSTED
    for key_id, key in sorted(change_trust(path, public=public, key_file=key_file, remove=remove).items()):
        if as_json:
            emit_json({"key_id": key_id, "public": key.keyval.public})
        else:
            print(f"{key_id}  {key.keyval.public}")


@support_app.command("record")
def support_record(
    capability: Annotated[str, typer.Option(help="Whose journey the test ran; docs/support.md lists them.")],
    driver: Annotated[str, typer.Option(help="Of the exact tuple that it ran on, as the worker names it when it asks.")],
    sandbox_provider_revision: Annotated[str, typer.Option()],
    policy: Annotated[str, typer.Option()],
    execution_target: Annotated[str, typer.Option()],
    test: Annotated[str, typer.Option(help="Which test ran the journey, so that it can be looked up.")],
    passed: Annotated[bool, typer.Option("--passed/--failed", help="How it ended.")],
    key: Annotated[Path, typer.Option(metavar="FILE", help="The private key that signs, in PEM, of mode 0600.")],
    harness_revision: Annotated[str | None, typer.Option(help="For checkpoints, native continuation and replacement.")] = None,
    environment_revision: Annotated[str | None, typer.Option(help="For checkpoints, native continuation and replacement.")] = None,
    release: Annotated[str | None, typer.Option(help="That the journey ran against. Default: the one installed here.")] = None,
    session: Annotated[str | None, typer.Option(metavar="SESS", help="That the journey ran in.")] = None,
    make_key: Annotated[bool, typer.Option("--make-key", help="Make the key file where it is not there.")] = False,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Sign one observation of a journey that your own test ran, for a worker of your own. It runs nothing: it believes you."""
    from connectors.support.catalogue import STATEMENTS, TRUSTED, trusted_keys
    from connectors.support.journeys import record
    from connectors.support.statement import Evidence, ExactTuple
    from connectors.support.support import running_release
    from streams.custody.signing import SigningKey

    if not make_key and not key.exists():
        raise Misconfigured(f"key file {key}: not there; --make-key makes it")
    folder = found.settings_of_up(data_dir).support_path
    exact = ExactTuple(
        release=release or running_release(), driver=driver, sandbox_provider_revision=sandbox_provider_revision, policy=policy,
        execution_target=execution_target, harness_revision=harness_revision, environment_revision=environment_revision,
    )  # fmt: skip
    try:
        signing = SigningKey.at(key)
        evidence = Evidence(test=test, session_id=session)
        digest = record(folder / STATEMENTS, signing, capability, exact, "passed" if passed else "failed", evidence)
    except OSError as error:
        raise Misconfigured(f"{error.filename or key}: {error.strerror}") from error
    if as_json:
        emit_json({"statement": digest, "key_id": signing.public.key_id, "file": str(folder / STATEMENTS)})
    else:
        print(f"{digest}  {folder / STATEMENTS}")
    if signing.public.key_id not in trusted_keys(folder / TRUSTED):
        remark(f"it counts once its key is trusted here: session-streams support trust --key-file {key}")


@support_app.command("qualify")
def support_qualify(
    target: Annotated[Path, typer.Argument(help="The target of an import as JSON, without its receipt.")],
    days: Annotated[float, typer.Option(help="How long the qualification is good, at most: its evidence may end sooner.")] = 7.0,
    data_dir: DataDir = None,
) -> None:
    """Qualify a target for the import of capsules: print it with its signed receipt. Its driver must have been seen to pass."""
    import msgspec

    from connectors.support.qualifications import qualify
    from connectors.support.support import Support
    from streams.clock import now_us
    from streams.custody.signers import Signers
    from streams.errors import Invalid

    settings = found.settings_of_up(data_dir)
    try:
        asked = msgspec.json.decode(target.read_bytes(), type=dict)
    except OSError as error:
        raise Misconfigured(f"{target}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{target}: {error}") from error
    emit_json(qualify(Support(settings), Signers(settings.signers_path), asked, now=now_us(), days=days))


@support_app.command("withdraw")
def support_withdraw(
    receipt: Annotated[str, typer.Argument(help="The receipt's `receipt_digest`.")],
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Withdraw a qualification: imports into what it qualified are refused from now on."""
    from connectors.support.qualifications import WITHDRAWN, withdraw
    from streams.errors import Invalid

    if re.fullmatch(r"sha256:[0-9a-f]{64}", receipt) is None:
        raise Invalid("receipt: expected sha256: and 64 hex digits")
    receipts = withdraw(found.settings_of_up(data_dir).support_path / WITHDRAWN, receipt)
    if as_json:
        emit_json({"withdrawn": sorted(receipts)})
    else:
        print(f"{receipt} is withdrawn, {len(receipts)} in all")
