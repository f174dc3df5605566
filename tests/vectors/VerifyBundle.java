import com.fasterxml.jackson.core.*;
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.cfg.JsonNodeFeature;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.*;
import java.nio.*;
import java.nio.file.*;
import java.security.*;
import java.security.spec.X509EncodedKeySpec;
import java.util.*;
import static java.nio.charset.StandardCharsets.UTF_8;

/** A second verifier of Session Bundles, after docs/bundle.md: {@code VerifyBundle.java TRUST FILE [TRUST FILE ...]}, one verdict a line. Not
 * checked here, as a reader of the page may leave it out: that the schemas of attributes are the published ones, and escapes within texts. */
class VerifyBundle {
    static final List<String> SECTIONS = List.of("events", "actors", "work", "interactions", "context-snapshots", "artifacts", "continuation-capsules");
    static final JsonMapper JSON = JsonMapper.builder().enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
        .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS, DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
        .enable(JsonNodeFeature.WRITE_PROPERTIES_SORTED).build();
    static final HexFormat HEX = HexFormat.of();
    static class Refuted extends RuntimeException { Refuted(String code) { super(code); } }

    public static void main(String[] given) throws Exception {
        for (int i = 0; i < given.length; i += 2) {
            String verdict = "verified";
            try { check(Files.readAllBytes(Path.of(given[i + 1])), Files.readAllBytes(Path.of(given[i]))); } catch (Refuted refuted) { verdict = refuted.getMessage(); }
            System.out.println(verdict + " " + given[i + 1]);
        }
    }

    static void check(byte[] file, byte[] trust) throws Exception {
        Map<String, JsonNode> keys = new HashMap<>();
        as("no_trust", () -> {
            JsonNode told = parsed(trust);
            require(told.path("format").asText().equals("session-streams.trust") && told.path("schema_version").isInt() && told.path("schema_version").asInt() == 1 && told.get("keys").isArray());
            for (JsonNode key : told.get("keys")) {
                byte[] bytes = HEX.parseHex(key.get("keyval").get("public").textValue());
                require(bytes.length == 32 && HEX.formatHex(bytes).equals(key.get("keyval").get("public").textValue()) && key.get("keytype").asText().equals("ed25519") && key.get("scheme").asText().equals("ed25519"));
                require(key.get("key_id").asText().equals(HEX.formatHex(sha(bytes))));
                if (key.get("purpose").asText().equals("bundles")) keys.merge(key.get("key_id").textValue(), key, (one, other) -> one.hasNonNull("revoked_at") ? one : other);
            }
        });
        int start = file.length - 1;
        if (start < 0 || file[start] != '\n') throw new Refuted("malformed_envelope");
        while (start > 0 && file[start - 1] != '\n') start--;
        JsonNode manifest = manifest(Arrays.copyOfRange(file, start, file.length - 1), keys);
        long whole = 0;
        for (JsonNode section : manifest.get("sections")) whole += section.get("bytes").longValue();
        if (whole != start) throw new Refuted("wrong_lengths");
        int at = 0;
        for (JsonNode section : manifest.get("sections")) {
            byte[] part = Arrays.copyOfRange(file, at, at += section.get("bytes").intValue());
            if (!section.get("digest").asText().equals("sha256:" + HEX.formatHex(sha(part)))) throw new Refuted("section_mismatch");
            long lines = 0;
            for (byte each : part) lines += each == '\n' ? 1 : 0;
            boolean events = section.get("name").asText().equals("events");
            if (part.length > 0 && part[part.length - 1] != '\n' || lines != section.get("items").longValue() + (events ? 2 : 0)) throw new Refuted("manifest_untrue");
        }
        Export.check(Arrays.copyOfRange(file, 0, manifest.get("sections").get(0).get("bytes").intValue()), manifest);
    }

    static JsonNode manifest(byte[] envelope, Map<String, JsonNode> keys) throws Exception {
        byte[][] parts = new byte[2][];
        String[] names = new String[2];
        as("malformed_envelope", () -> {
            require(envelope.length <= 1 << 20);
            JsonNode told = parsed(envelope), signature = told.get("signatures").get(0);
            parts[0] = Base64.getDecoder().decode(told.get("payload").textValue());
            parts[1] = Base64.getDecoder().decode(signature.get("sig").textValue());
            names[0] = told.get("payloadType").textValue();
            names[1] = signature.get("keyid").textValue();
            String again = JSON.writeValueAsString(new TreeMap<>(Map.of("payload", parts[0], "payloadType", names[0],
                "signatures", List.of(new TreeMap<>(Map.of("keyid", names[1], "sig", parts[1]))))));
            require(Arrays.equals(again.getBytes(UTF_8), envelope));
        });
        if (!names[0].equals("application/vnd.checkfu.session-bundle+json")) throw new Refuted("wrong_type");
        JsonNode key = keys.get(names[1]);
        if (key == null) throw new Refuted("unknown_key");
        if (key.hasNonNull("revoked_at")) throw new Refuted("revoked_key");
        Signature verifier = Signature.getInstance("Ed25519");
        byte[] der = HEX.parseHex("302a300506032b6570032100" + key.get("keyval").get("public").asText());
        verifier.initVerify(KeyFactory.getInstance("Ed25519").generatePublic(new X509EncodedKeySpec(der)));
        verifier.update(("DSSEv1 " + names[0].length() + " " + names[0] + " " + parts[0].length + " ").getBytes(UTF_8));
        verifier.update(parts[0]);
        as("wrong_signature", () -> require(verifier.verify(parts[1])));
        JsonNode[] found = new JsonNode[1];
        as("malformed_manifest", () -> {
            JsonNode told = found[0] = parsed(parts[0]);
            boolean canonical = isCanonical(told) & JSON.writeValueAsString(told).equals(new String(parts[0], UTF_8));
            require(told.isObject());
            if (!told.path("format").asText().equals("checkfu.session-bundle") || told.path("schema_version").asInt() != 1) throw new Refuted("unknown_format");
            if (!canonical) throw new Refuted("not_canonical");
            require(names(told).equals("end_sequence format last_hash schema_version sections session_id workspace_id") && told.get("session_id").isTextual()
                && isCount(told.get("end_sequence")) && told.get("sections").size() == SECTIONS.size());
            for (int i = 0; i < SECTIONS.size(); i++) {
                JsonNode each = told.get("sections").get(i);
                require(names(each).equals("bytes digest gaps items name source") && SECTIONS.get(i).equals(each.get("name").textValue())
                    && isCount(each.get("bytes")) && isCount(each.get("items")) && each.get("digest").isTextual() && each.get("source").isObject() && each.get("gaps").isArray());
                for (JsonNode gap : each.get("gaps")) require(gap.get("reason").isTextual());
            }
        });
        return found[0];
    }

    interface Step { void run() throws Exception; }
    /** Whatever goes wrong in a step has the step's name, but for what names itself. */
    static void as(String code, Step step) {
        try { step.run(); } catch (Refuted refuted) { throw refuted.getMessage().isEmpty() ? new Refuted(code) : refuted;
        } catch (JsonParseException error) { throw new Refuted(code.equals("malformed_manifest") && error.getMessage().startsWith("Duplicate") ? "duplicate_key" : code);
        } catch (Exception error) { throw new Refuted(code); }
    }
    static void require(boolean holds) { if (!holds) throw new Refuted(""); }
    static String decoded(byte[] text) throws Exception { return UTF_8.newDecoder().decode(ByteBuffer.wrap(text)).toString(); }
    static JsonNode parsed(byte[] text) throws Exception { return JSON.readTree(decoded(text)); }
    static String names(JsonNode node) { return String.join(" ", (Iterable<String>) node::fieldNames); }
    static boolean isCount(JsonNode node) { return node.isIntegralNumber() && node.longValue() >= 0; }
    static boolean same(JsonNode one, JsonNode other) { return one.isNull() ? other == null || other.isNull() : one.equals(other); }
    /** False for a number with a fraction or an exponent; what RFC 8785 has no form for is refuted. */
    static boolean isCanonical(JsonNode node) {
        if (node.isIntegralNumber()) require(node.canConvertToLong() && Math.abs(node.longValue()) < 1L << 53);
        if (node.isTextual()) require(UTF_8.newEncoder().canEncode(node.textValue()));
        boolean canonical = !node.isBigDecimal();
        for (JsonNode each : node) canonical &= isCanonical(each);
        return canonical;
    }
    static byte[] sha(byte[]... parts) throws Exception {
        MessageDigest hashed = MessageDigest.getInstance("SHA-256");
        for (byte[] part : parts) hashed.update(part);
        return hashed.digest();
    }
}

/** The events of a bundle are an export (docs/export.md): a chain from the session's beginning to the end that the manifest names. */
class Export extends VerifyBundle {
    static final List<String> BEFORE = List.of("event_id", "session_id", "type", "workspace_id", "thread_id", "turn_id", "run_id", "attempt_generation",
        "native_task_id", "actor_id", "subject_id", "command_id", "occurred_at");
    static final String MEMBERS = "kind sequence " + String.join(" ", BEFORE) + " links attributes content command_offset command_last accepted_at previous_hash hash";

    static void check(byte[] export, JsonNode manifest) throws Exception {
        Map<String, long[]> gaps = new TreeMap<>();
        JsonNode[] told = new JsonNode[2];  // last hash, workspace
        String session = manifest.get("session_id").textValue();
        long[] end = new long[1];
        as("events_untrue", () -> {
            String[] lines = decoded(export).split("\n");
            JsonNode header = parsed(lines[0].getBytes(UTF_8)), trailer = parsed(lines[lines.length - 1].getBytes(UTF_8));
            String previous = HEX.formatHex(sha(("session-streams/chain/v1" + session).getBytes(UTF_8)));
            require(names(header).equals("kind format format_version session_id from_sequence end_sequence chain genesis attribute_schemas")
                && header.get("format").asText().equals("checkfu.session-export") && header.get("format_version").asInt() == 1
                && header.get("from_sequence").asInt() == 1 && header.get("chain").asText().equals("session-streams/chain/v1")
                && header.get("session_id").asText().equals(session) && header.get("genesis").asText().equals(previous));
            end[0] = header.get("end_sequence").longValue();
            require(lines.length == end[0] + 2 && names(trailer).equals("kind count last_hash") && trailer.get("kind").asText().equals("trailer"));
            for (int i = 1; i <= end[0]; i++) {
                require(lines[i].replaceAll("\"[^\"\\\\]*+(?:\\\\.[^\"\\\\]*+)*+\"", "").chars().noneMatch(Character::isWhitespace));
                JsonNode event = parsed(lines[i].getBytes(UTF_8));
                require(event.get("sequence").isIntegralNumber() && event.get("sequence").longValue() == i);
                boolean missing = event.get("kind").asText().equals("missing");
                if (missing) require(names(event).equals("kind sequence reason"));
                else position(event, session, previous, header.get("attribute_schemas"));
                if (told[1] == null) told[1] = event.get("workspace_id");
                told[0] = event.get("hash");
                previous = missing ? null : told[0].textValue();
                if (event.has("reason")) {
                    long first = i;
                    long[] gap = gaps.computeIfAbsent(missing ? "missing" : event.get("reason").textValue(), each -> new long[] {0, first, 0});
                    gap[0]++;
                    gap[2] = i;
                }
            }
            require(trailer.get("count").longValue() == end[0] && Objects.equals(trailer.get("last_hash").textValue(), previous));
        });
        List<String> named = new ArrayList<>(), found = new ArrayList<>();
        for (JsonNode gap : manifest.get("sections").get(0).get("gaps")) if (!gap.has("session_id")) named.add(JSON.writeValueAsString(gap));
        for (var each : gaps.entrySet()) found.add(JSON.writeValueAsString(new TreeMap<>(Map.of("reason", each.getKey(), "count", each.getValue()[0],
            "first_sequence", each.getValue()[1], "last_sequence", each.getValue()[2]))));
        if (!named.equals(found) || manifest.get("end_sequence").longValue() != end[0] || !same(manifest.get("last_hash"), told[0])
            || !same(manifest.get("workspace_id"), told[1])) throw new Refuted("manifest_untrue");
    }

    static void position(JsonNode event, String session, String previous, JsonNode schemas) throws Exception {
        JsonNode content = event.get("content"), attributes = event.get("attributes"), key = content.get("key_reference");
        String state = content.get("state").textValue(), reason = event.path("reason").textValue();
        boolean shown = reason == null && !state.equals("none");
        require(names(event).equals(MEMBERS + (reason == null ? "" : " reason")) && event.get("kind").asText().equals(reason == null ? "event" : "unavailable")
            && names(content).equals("state key_reference digest" + (shown ? " salt text" : "")) && event.get("session_id").asText().equals(session)
            && (previous == null || event.get("previous_hash").asText().equals(previous)));
        require(reason == null ? !shown || state.equals("sealed")
            : reason.equals("omitted") ? state.equals("omitted") : state.equals("sealed") && List.of("expired", "erased", "unreadable").contains(reason));
        if (shown) require(HEX.formatHex(sha(HEX.parseHex(content.get("salt").textValue()), content.get("text").textValue().getBytes(UTF_8)))
            .equals(content.get("digest").textValue()));
        ByteArrayOutputStream said = new ByteArrayOutputStream(), links = new ByteArrayOutputStream(), reference = new ByteArrayOutputStream();
        said.write(HEX.parseHex(event.get("previous_hash").textValue()));
        for (String each : BEFORE) said.write(lp(value(event.get(each))));
        for (JsonNode link : event.get("links")) {
            require(names(link).equals("relation id"));
            links.write(lp(value(link.get("relation"))));
            links.write(lp(value(link.get("id"))));
        }
        said.write(lp(links.toByteArray()));
        byte[] bytes = attributes.isNull() ? null : Base64.getDecoder().decode(attributes.get("bytes").textValue());
        if (bytes != null) {
            String schema = attributes.get("schema").textValue();
            require(names(attributes).equals("schema bytes decoded") && Base64.getEncoder().encodeToString(bytes).equals(attributes.get("bytes").textValue())
                && bytes[0] == 0 && schema.replaceFirst("\\.v[0-9]+$", "").equals("attributes/" + event.get("type").textValue().split("\\.")[0]));
            ByteBuffer body = ByteBuffer.wrap(bytes, 5, bytes.length - 5).order(ByteOrder.LITTLE_ENDIAN);
            StringJoiner fields = new StringJoiner(" ");
            for (JsonNode field : schemas.get(schema).get("fields")) {
                JsonNode kinds = field.get("type"), kind = kinds.isArray() ? kinds.get((int) varint(body)) : kinds;
                String type = kind.isObject() ? kind.get("type").textValue() : kind.textValue(), name = field.get("name").textValue();
                if (type.equals("null")) continue;
                fields.add(name);
                require(holds(type, body, attributes.get("decoded").get(name)));
            }
            require(!body.hasRemaining() && names(attributes.get("decoded")).equals(fields.toString()));
        }
        said.write(lp(bytes));
        said.write(lp(value(content.get("state"))));
        for (JsonNode each : key) reference.write(lp(value(each)));
        said.write(lp(key.isNull() ? null : reference.toByteArray()));
        said.write(lp(content.get("digest").isNull() ? null : HEX.parseHex(content.get("digest").textValue())));
        for (String each : List.of("sequence", "command_offset", "command_last", "accepted_at")) said.write(lp(value(event.get(each))));
        require(HEX.formatHex(sha(said.toByteArray())).equals(event.get("hash").textValue()));
    }

    /** Whether the next bytes (Avro) hold what is shown. */
    static boolean holds(String type, ByteBuffer body, JsonNode shown) throws Exception {
        switch (type) {
            case "boolean": return shown.isBoolean() && shown.booleanValue() == (body.get() != 0);
            case "int": case "long": return shown.isIntegralNumber() && shown.longValue() == varint(body);
            case "double":
                double number = body.getDouble();
                return Double.isFinite(number) ? shown.isNumber() && shown.doubleValue() == number
                    : shown.asText().equals(Double.isNaN(number) ? "nan" : number > 0 ? "inf" : "-inf");
            default:
                byte[] text = new byte[(int) varint(body)];
                body.get(text);
                return type.equals("string") && decoded(text).equals(shown.textValue());
        }
    }

    static long varint(ByteBuffer body) {
        long number = 0;
        for (int shift = 0; ; shift += 7) {
            byte each = body.get();
            number |= (long) (each & 0x7f) << shift;
            if (each >= 0) return (number >>> 1) ^ -(number & 1);
        }
    }

    /** As the chain has it: true and false are a byte, numbers eight, and in front of all stands a length. */
    static byte[] value(JsonNode value) {
        return value.isNull() ? null : value.isBoolean() ? new byte[] {(byte) (value.booleanValue() ? 1 : 0)} : value.isTextual()
            ? value.textValue().getBytes(UTF_8) : ByteBuffer.allocate(8).putLong(value.longValue()).array();
    }
    static byte[] lp(byte[] value) {
        return value == null ? new byte[] {-1, -1, -1, -1} : ByteBuffer.allocate(4 + value.length).putInt(value.length).put(value).array();
    }
}
