"""The plain fold in Quix Streams, exactly-once. Run as a script in the environment of quix-requirements.txt."""

from quixstreams import Application, State
from quixstreams.models import TopicConfig

from benchmarks.peers.fold import advance, task

_STATE = "s"


def _folded(value: bytes, state: State) -> bytes:
    after = advance(state.get_bytes(_STATE), value)
    state.set_bytes(_STATE, after)
    return after + value


def main() -> None:
    """Until the process is told to end."""
    given = task()
    application = Application(
        broker_address=given["bootstrap"],
        consumer_group=given["name"],
        state_dir=given["state_dir"],
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        loglevel="WARNING",
        **given["application"],
        consumer_extra_config=given["consumer"],
        producer_extra_config=given["producer"],
    )
    form = TopicConfig(num_partitions=given["partitions"], replication_factor=1)
    plain = {"key_deserializer": "bytes", "value_deserializer": "bytes", "key_serializer": "bytes", "value_serializer": "bytes"}
    source = application.topic(given["input"], config=form, **plain)
    sink = application.topic(given["output"], config=form, **plain)
    application.dataframe(source).apply(_folded, stateful=True).to_topic(sink)
    application.run()


if __name__ == "__main__":
    main()
