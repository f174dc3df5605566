package bench;

import java.io.FileReader;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * The plain fold of benchmarks/peers/fold.py: state is count (8 bytes) and hash (32), the output is the new state and the value.
 *
 * <p>Its one argument is a properties file: what begins with {@code fold.} is read here, the rest is Kafka Streams' own.
 */
public final class Fold implements Processor<byte[], byte[], byte[], byte[]> {
    private static final String STORE = "fold";
    private static final int COUNT_BYTES = 8;
    private static final int STATE_BYTES = 40;

    private final MessageDigest digest = sha256();
    private ProcessorContext<byte[], byte[]> context;
    private KeyValueStore<byte[], byte[]> store;

    @Override
    public void init(final ProcessorContext<byte[], byte[]> given) {
        context = given;
        store = given.getStateStore(STORE);
    }

    @Override
    public void process(final Record<byte[], byte[]> record) {
        final byte[] stored = store.get(record.key());
        final byte[] before = stored == null ? new byte[STATE_BYTES] : stored;
        digest.update(before, COUNT_BYTES, STATE_BYTES - COUNT_BYTES);
        digest.update(record.value());
        final byte[] state = ByteBuffer.allocate(STATE_BYTES).putLong(ByteBuffer.wrap(before).getLong() + 1).put(digest.digest()).array();
        store.put(record.key(), state);
        final byte[] output = new byte[STATE_BYTES + record.value().length];
        System.arraycopy(state, 0, output, 0, STATE_BYTES);
        System.arraycopy(record.value(), 0, output, STATE_BYTES, record.value().length);
        context.forward(record.withValue(output));
    }

    /** Until the process is told to end. Exit status 1 where Kafka Streams gave up. */
    public static void main(final String[] arguments) throws IOException, InterruptedException {
        final Properties settings = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            settings.load(file);
        }
        final KafkaStreams streams = new KafkaStreams(topology(settings), settings);
        final CountDownLatch failed = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            failed.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setGlobalStateRestoreListener(new Told());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
        failed.await();
        System.exit(1);
    }

    private static Topology topology(final Properties settings) {
        final StoreBuilder<KeyValueStore<byte[], byte[]>> builder =
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(STORE), Serdes.ByteArray(), Serdes.ByteArray());
        if (Boolean.parseBoolean(settings.getProperty("fold.caching"))) {
            builder.withCachingEnabled();
        } else {
            builder.withCachingDisabled();
        }
        return new Topology()
            .addSource("input", Serdes.ByteArray().deserializer(), Serdes.ByteArray().deserializer(), settings.getProperty("fold.input"))
            .addProcessor("fold", Fold::new, "input")
            .addStateStore(builder, "fold")
            .addSink("output", settings.getProperty("fold.output"), Serdes.ByteArray().serializer(), Serdes.ByteArray().serializer(), "fold");
    }

    private static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (final NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Says on standard output when the restore of a partition begins and ends: event, partition, records, milliseconds. */
    private static final class Told implements StateRestoreListener {
        @Override
        public void onRestoreStart(final TopicPartition place, final String name, final long first, final long end) {
            tell("restore_started", place, end - first);
        }

        @Override
        public void onBatchRestored(final TopicPartition place, final String name, final long end, final long count) {
        }

        @Override
        public void onRestoreEnd(final TopicPartition place, final String name, final long total) {
            tell("restore_ended", place, total);
        }

        private static synchronized void tell(final String event, final TopicPartition place, final long records) {
            System.out.println(event + " " + place.partition() + " " + records + " " + System.currentTimeMillis());
        }
    }
}
