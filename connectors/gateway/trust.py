"""The public keys of what this installation signs, for whoever has a key of it: with them its bundles and receipts are checked offline."""

from connectors.edge.principal import ANY_SCOPE
from connectors.gateway.answers import Answer, plain
from connectors.gateway.bodies import NoQuery
from connectors.gateway.call import Call
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from streams.custody.signers import Signers, Trust


async def signing_keys(gateway: Gateway, call: Call, query: NoQuery) -> Answer:
    return plain(await gateway.in_thread(Signers(gateway.settings.signers_path).trust))


ROUTES = (
    Route(
        method="GET", path="/v1/signing-keys", name="signing_keys",
        summary="The public keys of what is signed here: for what, since when, whether revoked", handler=signing_keys,
        scope=ANY_SCOPE, answer=Trust, position=False,
    ),
)  # fmt: skip
