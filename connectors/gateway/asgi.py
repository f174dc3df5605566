"""The types of ASGI, as far as the hottest routes and the endpoint speak it themselves."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

WHOLE: Final = "session_streams.whole"
"""In a scope once the request has arrived to its end: its body is there, and nobody need wait for it."""
DOOR: Final = "session_streams.door"
"""In the state that the application shares with the server's protocol: the `Door`."""
