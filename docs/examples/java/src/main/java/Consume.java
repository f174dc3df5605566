import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads every accepted event exactly once and in order, into one file of JSON lines for each partition.
 *
 * <pre>java -cp 'target/classes:target/dependency/*' Consume 127.0.0.1:9092 sessions.events SCHEMAS FOLDER GROUP INSTANCE</pre>
 *
 * SCHEMAS is the folder with registry.json, or the URL of a Confluent-compatible registry. It may be killed at any time.
 */
public final class Consume {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        Schemas schemas = new Schemas(arguments[2]);
        Path folder = Files.createDirectories(Path.of(arguments[3]));
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[4],
            // Under a name of its own, a process that was killed takes its partitions back at once.
            "group.instance.id", arguments[5],
            // After so long, another process takes over from one that does not come back.
            "session.timeout.ms", 10_000,
            // Without it, events of transactions that are aborted later would be seen.
            "isolation.level", "read_committed",
            // Where to go on is in the files.
            "enable.auto.commit", false,
            "auto.offset.reset", "earliest");
        Map<TopicPartition, Lines> files = new HashMap<>();
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Thread main = Thread.currentThread();
            Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(consumer, main)));
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                    for (TopicPartition partition : assigned) {
                        Lines lines = Lines.open(folder.resolve(partition.partition() + ".jsonl"));
                        files.put(partition, lines);
                        if (lines.next() > 0) {
                            consumer.seek(partition, lines.next());
                        } else {
                            consumer.seekToBeginning(List.of(partition));
                        }
                    }
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
                    revoked.forEach(partition -> files.remove(partition).close());
                }
            });
            while (true) {
                var records = consumer.poll(Duration.ofMillis(500));
                for (TopicPartition partition : records.partitions()) {
                    StringBuilder batch = new StringBuilder();
                    for (ConsumerRecord<byte[], byte[]> record : records.records(partition)) {
                        batch.append(JSON.writeValueAsString(read(record, schemas))).append('\n');
                    }
                    files.get(partition).append(batch);
                }
            }
        } catch (WakeupException asked) {
            // The shutdown hook asked for it; closing the consumer has closed the files.
        }
    }

    private static void stop(KafkaConsumer<?, ?> consumer, Thread main) {
        consumer.wakeup();
        try {
            main.join(10_000);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** The line of a record. Throws where it cannot be read: the log's own record is never skipped. */
    private static Map<String, Object> read(ConsumerRecord<byte[], byte[]> record, Schemas schemas) {
        try {
            GenericRecord event = schemas.decode(ByteBuffer.wrap(record.value()));
            GenericRecord content = (GenericRecord) event.get("content");
            GenericRecord reference = (GenericRecord) content.get("key_reference");
            ByteBuffer attributes = (ByteBuffer) event.get("attributes");
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("offset", record.offset());
            for (String name : List.of("session_id", "sequence", "event_id", "type", "subject_id")) {
                line.put(name, plain(event.get(name)));
            }
            line.put("accepted_at", Instant.EPOCH.plus((Long) event.get("accepted_at"), ChronoUnit.MICROS).toString());
            // Attributes are a whole value of their own: its header names the schema of the type's family.
            line.put("attributes", attributes == null ? null : fields(schemas.decode(attributes)));
            line.put("content_state", plain(content.get("state")));
            line.put("content_digest", plain(content.get("digest")));
            line.put("expiry_day", reference == null ? null : plain(reference.get("expiry_day")));
            return line;
        } catch (IOException | RuntimeException error) {
            throw new IllegalStateException(
                record.topic() + ":" + record.partition() + ":" + record.offset() + " cannot be read: " + error, error);
        }
    }

    private static Map<String, Object> fields(GenericRecord record) {
        Map<String, Object> found = new LinkedHashMap<>();
        record.getSchema().getFields().forEach(field -> found.put(field.name(), plain(record.get(field.pos()))));
        return found;
    }

    private static Object plain(Object value) {
        if (value instanceof ByteBuffer bytes) {
            byte[] copy = new byte[bytes.remaining()];
            bytes.duplicate().get(copy);
            return HexFormat.of().formatHex(copy);
        }
        return value instanceof CharSequence text ? text.toString() : value;
    }

    /** Numbers to schemas: a folder with registry.json, or the URL of a Confluent-compatible registry. */
    private static final class Schemas {
        private final String place;
        private final Map<Integer, Schema> parsed = new HashMap<>();

        Schemas(String place) {
            this.place = place;
        }

        /** A value: 00, four bytes of schema number, the Avro body; read with the schema that it was written with. */
        GenericRecord decode(ByteBuffer value) throws IOException {
            ByteBuffer bytes = value.duplicate();
            if (bytes.remaining() < 5 || bytes.get() != 0) {
                throw new IOException("not a value of Session Streams");
            }
            int number = bytes.getInt();
            Schema schema = parsed.get(number);
            if (schema == null) {
                schema = load(number);
                parsed.put(number, schema);
            }
            byte[] body = new byte[bytes.remaining()];
            bytes.get(body);
            BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(body, null);
            GenericRecord record = new GenericDatumReader<GenericRecord>(schema).read(null, decoder);
            if (!decoder.isEnd()) {
                throw new IOException("bytes after the end of the record");
            }
            return record;
        }

        private Schema load(int number) throws IOException {
            if (place.contains("://")) {
                return new Schema.Parser().parse(JSON.readTree(get(place.replaceAll("/$", "") + "/schemas/ids/" + number)).get("schema").asText());
            }
            for (JsonNode entry : JSON.readTree(Path.of(place, "registry.json").toFile())) {
                if (entry.get("id").asInt() == number) {
                    String name = entry.get("subject").asText() + ".v" + entry.get("version").asInt() + ".avsc";
                    return new Schema.Parser().parse(Path.of(place, name).toFile());
                }
            }
            throw new IOException("schema " + number + " is newer than these files");
        }

        private static String get(String url) throws IOException {
            try {
                HttpRequest request = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(10)).build();
                HttpResponse<String> answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
                if (answer.statusCode() != 200) {
                    throw new IOException(url + " answers " + answer.statusCode());
                }
                return answer.body();
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw new IOException(interrupted);
            }
        }
    }

    /** The effect and the position in one place: a line holds both, and a line that was cut off holds neither. */
    private static final class Lines {
        private final RandomAccessFile file;
        private long next;

        private Lines(RandomAccessFile file) {
            this.file = file;
        }

        /** Opens a partition's file for this process alone, and takes away what a kill left of its last line. */
        static Lines open(Path path) {
            try {
                Lines lines = new Lines(new RandomAccessFile(path.toFile(), "rw"));
                if (lines.file.getChannel().tryLock() == null) {
                    throw new IllegalStateException("another process writes " + path);
                }
                long end = lines.endOfLineBefore(lines.file.length());
                lines.file.setLength(end);
                if (end > 0) {
                    long start = lines.endOfLineBefore(end - 1);
                    byte[] last = new byte[(int) (end - start)];
                    lines.file.seek(start);
                    lines.file.readFully(last);
                    lines.next = JSON.readTree(last).get("offset").asLong() + 1;
                }
                lines.file.seek(end);
                return lines;
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        /** The offset behind the last line; 0 where there is none. Offsets have holes, so lines are not counted. */
        long next() {
            return next;
        }

        void append(CharSequence batch) throws IOException {
            file.write(batch.toString().getBytes(StandardCharsets.UTF_8));
            file.getChannel().force(false);
        }

        void close() {
            try {
                file.close();
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        private long endOfLineBefore(long place) throws IOException {
            byte[] block = new byte[8192];
            for (long end = place; end > 0; end -= block.length) {
                int size = (int) Math.min(block.length, end);
                file.seek(end - size);
                file.readFully(block, 0, size);
                for (int index = size - 1; index >= 0; index--) {
                    if (block[index] == '\n') {
                        return end - size + index + 1;
                    }
                }
            }
            return 0;
        }
    }
}
