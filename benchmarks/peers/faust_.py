"""The plain fold in Faust, at least once. Run as a script in the environment of faust-requirements.txt.

Not exactly-once: with that asked for, Faust 0.15.3 writes to a topic that it does not itself consume outside of any
transaction, so the name would promise what is not there.
"""

from typing import Any

import faust
import mode.loop

from benchmarks.peers.fold import advance, task


def main() -> None:
    """Until the process is told to end."""
    mode.loop.use("uvloop")
    given = task()
    application = faust.App(
        given["name"],
        broker=f"kafka://{given['bootstrap']}",
        datadir=given["state_dir"],
        topic_partitions=given["partitions"],
        topic_replication_factor=1,
        **given["application"],
    )
    plain: dict[str, Any] = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
    source = application.topic(given["input"], **plain)
    sink = application.topic(given["output"], **plain)
    table = application.Table("fold", partitions=given["partitions"], key_type=bytes, value_type=bytes)

    @application.agent(source)
    async def fold(stream: faust.StreamT[bytes]) -> None:
        async for key, value in stream.items():
            after = advance(table.get(key), value)
            table[key] = after
            await sink.send(key=key, value=after + value)

    faust.Worker(application, loglevel="warning", quiet=True).execute_from_commandline()


if __name__ == "__main__":
    main()
