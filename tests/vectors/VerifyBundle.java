import com.fasterxml.jackson.core.*;
import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.cfg.JsonNodeFeature;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.*;
import java.math.*;
import java.nio.*;
import java.nio.file.*;
import java.security.*;
import java.security.spec.X509EncodedKeySpec;
import java.util.*;
import java.util.regex.Pattern;
import static java.nio.charset.StandardCharsets.*;

/** A second verifier of Session Bundles, after docs/bundle.md: {@code VerifyBundle.java TRUST FILE [TRUST FILE ...]}, one verdict a line. Not
 * checked here is that the schemas of attributes are the published ones; and a file is read into memory whole. */
class VerifyBundle {
    static final List<String> SECTIONS = List.of("events", "actors", "work", "interactions", "context-snapshots", "artifacts", "continuation-capsules");
    static final StreamReadConstraints WIDE = StreamReadConstraints.builder()
        .maxStringLength(Integer.MAX_VALUE).maxNameLength(Integer.MAX_VALUE).maxNumberLength(4300).build();
    static final JsonMapper JSON = JsonMapper.builder(JsonFactory.builder().streamReadConstraints(WIDE).build())
        .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION).disable(JsonWriteFeature.WRITE_HEX_UPPER_CASE)
        .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS).enable(JsonNodeFeature.WRITE_PROPERTIES_SORTED).build();
    static final JsonMapper TWICE = JSON.rebuild().disable(StreamReadFeature.STRICT_DUPLICATE_DETECTION).build();
    /** As RFC 8785 has them, with ' for ". */
    static final List<String> SOURCES = List.of("{'format':'checkfu.session-export','format_version':1,'from_sequence':1,'kind':'session_log','through_sequence':END}",
        "{'from_sequence':1,'kind':'session_events','members':['actor_id','subject_id'],'through_sequence':END}",
        "{'families':['attempt','checkpoint','child','effect','run','thread','turn'],'from_sequence':1,'kind':'session_events','through_sequence':END}",
        "{'families':['approval','steering','wait'],'from_sequence':1,'kind':'session_events','through_sequence':END}",
        "{'families':['context'],'from_sequence':1,'kind':'session_events','through_sequence':END}",
        "{'families':['artifact'],'from_sequence':1,'kind':'session_events','through_sequence':END}",
        "{'families':['capsule'],'from_sequence':1,'kind':'session_events','through_sequence':END}");
    static final String GAP = "\\{('count':N,('first_sequence':N,'last_sequence':N,)?)?R}|\\{R,'session_id':'sess_[0-9a-f]{32}'(,'source_hash':'[0-9a-f]{64}')?(,'through_sequence':N)?}"
        .replace("N", "[0-9]+").replace("R", "'reason':'[a-z_]{1,40}'");
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
        Map<String, byte[]> keys = new HashMap<>();
        Set<String> revoked = new HashSet<>();
        as("no_trust", () -> {
            require(trust.length <= 1 << 20);
            JsonNode told = parsed(trust);
            require(is(told.get("format"), "session-streams.trust") && is(told.get("schema_version"), 1) && told.get("keys").isArray());
            for (JsonNode key : told.get("keys")) {
                byte[] bytes = hex(key.get("keyval").get("public"), 32);
                require(is(key.get("keytype"), "ed25519") && is(key.get("scheme"), "ed25519") && key.get("purpose").isTextual());
                require(is(key.get("key_id"), HEX.formatHex(sha(bytes))));
                if (is(key.get("purpose"), "bundles")) keys.put(key.get("key_id").textValue(), bytes);
                if (key.hasNonNull("revoked_at")) revoked.add(key.get("key_id").textValue());
            }
        });
        int start = file.length - 1;
        if (start < 0 || file[start] != '\n') throw new Refuted("malformed_envelope");
        while (start > 0 && file[start - 1] != '\n') start--;
        JsonNode manifest = manifest(Arrays.copyOfRange(file, start, file.length - 1), keys, revoked);
        long whole = 0;
        for (JsonNode section : manifest.get("sections")) whole += section.get("bytes").longValue();
        if (whole != start) throw new Refuted("wrong_lengths");
        int at = 0;
        for (JsonNode section : manifest.get("sections")) {
            byte[] part = Arrays.copyOfRange(file, at, at += section.get("bytes").intValue());
            if (!section.get("digest").asText().equals("sha256:" + HEX.formatHex(sha(part)))) throw new Refuted("section_mismatch");
            long lines = new String(part, ISO_8859_1).chars().filter(each -> each == '\n').count();
            boolean events = section.get("name").asText().equals("events");
            if (part.length > 0 && part[part.length - 1] != '\n' || lines != section.get("items").longValue() + (events ? 2 : 0)) throw new Refuted("manifest_untrue");
            if (lines > 0 && !events) as("manifest_untrue", () -> {
                String[] items = decoded(part).split("\n", -1);
                for (int i = 0; i < lines; i++) require(isItem(items[i]));
            });
        }
        Export.check(Arrays.copyOfRange(file, 0, manifest.get("sections").get(0).get("bytes").intValue()), manifest);
    }

    static JsonNode manifest(byte[] envelope, Map<String, byte[]> keys, Set<String> revoked) throws Exception {
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
        if (!keys.containsKey(names[1])) throw new Refuted("unknown_key");
        if (revoked.contains(names[1])) throw new Refuted("revoked_key");
        as("wrong_signature", () -> {
            Signature verifier = Signature.getInstance("Ed25519");
            byte[] der = HEX.parseHex("302a300506032b6570032100" + HEX.formatHex(keys.get(names[1])));
            verifier.initVerify(KeyFactory.getInstance("Ed25519").generatePublic(new X509EncodedKeySpec(der)));
            verifier.update(("DSSEv1 " + names[0].length() + " " + names[0] + " " + parts[0].length + " ").getBytes(UTF_8));
            verifier.update(parts[0]);
            require(verifier.verify(parts[1]));
        });
        JsonNode[] found = new JsonNode[1];
        as("malformed_manifest", () -> {
            try { parsed(parts[0]); } catch (JsonParseException error) {
                TWICE.readTree(decoded(parts[0]));
                throw new Refuted("duplicate_key");
            }
            JsonNode told = found[0] = parsed(parts[0]);
            require(hasForm(told, 64) && told.isObject());
            if (!is(told.get("format"), "checkfu.session-bundle") || !is(told.get("schema_version"), 1)) throw new Refuted("unknown_format");
            if (!JSON.writeValueAsString(told).equals(new String(parts[0], UTF_8))) throw new Refuted("not_canonical");
            require(names(told).equals("end_sequence format last_hash schema_version sections session_id workspace_id") && told.get("session_id").isTextual()
                && isTextOrNull(told.get("last_hash")) && isTextOrNull(told.get("workspace_id"))
                && isCount(told.get("end_sequence")) && told.get("sections").isArray() && told.get("sections").size() == SECTIONS.size());
            for (int i = 0; i < SECTIONS.size(); i++) {
                JsonNode each = told.get("sections").get(i);
                require(names(each).equals("bytes digest gaps items name source") && is(each.get("name"), SECTIONS.get(i))
                    && isCount(each.get("bytes")) && isCount(each.get("items")) && each.get("digest").isTextual() && each.get("gaps").isArray()
                    && quoted(each.get("source")).equals(SOURCES.get(i).replace("END", told.get("end_sequence").asText()))
                    && (each.get("items").longValue() > 0 || !each.get("gaps").isEmpty()));
                String before = "";
                for (JsonNode gap : each.get("gaps")) {
                    require(quoted(gap).matches(GAP) && before.compareTo(gap.get("reason").textValue()) <= 0);
                    before = gap.get("reason").textValue();
                }
            }
        });
        return found[0];
    }

    interface Step { void run() throws Exception; }
    /** Whatever goes wrong in a step has the step's name, but for what names itself. */
    static void as(String code, Step step) {
        try { step.run(); } catch (Refuted refuted) { throw refuted.getMessage().isEmpty() ? new Refuted(code) : refuted;
        } catch (Exception error) { throw new Refuted(code); }
    }
    static void require(boolean holds) { if (!holds) throw new Refuted(""); }
    static String decoded(byte[] text) throws Exception { return UTF_8.newDecoder().decode(ByteBuffer.wrap(text)).toString(); }
    static JsonNode parsed(byte[] text) throws Exception { return JSON.readTree(decoded(text)); }
    static String names(JsonNode node) { return String.join(" ", (Iterable<String>) node::fieldNames); }
    static String quoted(JsonNode node) throws Exception { return JSON.writeValueAsString(node).replace("'", "?").replace('"', '\''); }
    static boolean is(JsonNode node, String text) { return node != null && text.equals(node.textValue()); }
    static boolean is(JsonNode node, int number) { return node != null && node.isInt() && node.intValue() == number; }
    static boolean isCount(JsonNode node) { return node.isIntegralNumber() && node.canConvertToLong() && node.longValue() >= 0; }
    static boolean isTextOrNull(JsonNode node) { return node.isTextual() || node.isNull(); }
    static boolean same(JsonNode one, JsonNode other) { return one.isNull() ? other == null || other.isNull() : one.equals(other); }
    static byte[] hex(JsonNode node, int length) {
        byte[] bytes = HEX.parseHex(node.textValue());
        require(bytes.length == length && HEX.formatHex(bytes).equals(node.textValue()));
        return bytes;
    }
    /** Whether RFC 8785 has a form for it, with whole numbers only, and no more brackets in each other than that. */
    static boolean hasForm(JsonNode node, int depth) {
        if (node.isNumber()) return node.isIntegralNumber() && node.canConvertToLong() && Math.absExact(node.longValue()) < 1L << 53;
        if (node.isTextual()) return UTF_8.newEncoder().canEncode(node.textValue());
        boolean holds = depth > 0 || !node.isContainerNode();
        for (String name : (Iterable<String>) node::fieldNames) holds &= UTF_8.newEncoder().canEncode(name);
        for (JsonNode each : node) holds = holds && hasForm(each, depth - 1);
        return holds;
    }
    static boolean isItem(String line) throws Exception {
        require(line.getBytes(UTF_8).length < 4 << 20);
        JsonNode told = JSON.readTree(line);
        return told.isObject() && hasForm(told, 64) && JSON.writeValueAsString(told).equals(line);
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
    static final Pattern ESCAPE = Pattern.compile("[\"\\\\bfnrt]|u00(0[0-7bef]|1[0-9a-f])");
    static final List<String> OPTIONAL = List.of("thread_id", "turn_id", "run_id", "attempt_generation", "native_task_id", "actor_id", "subject_id", "occurred_at");
    static final List<String> NUMBERS = List.of("attempt_generation", "occurred_at", "sequence", "command_offset", "accepted_at");

    static void check(byte[] export, JsonNode manifest) throws Exception {
        Map<String, Map<String, Object>> gaps = new TreeMap<>();
        Map<Integer, String> numbers = new HashMap<>();
        JsonNode[] told = new JsonNode[2];  // last hash, workspace
        String session = manifest.get("session_id").textValue();
        long[] end = new long[1];
        as("events_untrue", () -> {
            String[] lines = decoded(export).split("\n", -1);
            JsonNode header = line(lines[0]), trailer = line(lines[lines.length - 2]);
            String previous = HEX.formatHex(sha(("session-streams/chain/v1" + session).getBytes(UTF_8)));
            require(names(header).equals("kind format format_version session_id from_sequence end_sequence chain genesis attribute_schemas")
                && is(header.get("kind"), "header") && is(header.get("format"), "checkfu.session-export") && is(header.get("format_version"), 1)
                && is(header.get("from_sequence"), 1) && is(header.get("chain"), "session-streams/chain/v1") && session.matches("sess_[0-9a-f]{32}")
                && is(header.get("session_id"), session) && is(header.get("genesis"), previous) && header.get("attribute_schemas").isObject());
            require(isCount(header.get("end_sequence")) && isCount(trailer.get("count")));
            end[0] = header.get("end_sequence").longValue();
            require(end[0] > 0 && lines.length == end[0] + 3 && names(trailer).equals("kind count last_hash") && is(trailer.get("kind"), "trailer"));
            for (int i = 1; i <= end[0]; i++) {
                JsonNode event = line(lines[i]);
                require(isCount(event.get("sequence")) && event.get("sequence").longValue() == i);
                boolean missing = is(event.get("kind"), "missing");
                if (missing) require(names(event).equals("kind sequence reason") && event.get("reason").isTextual());
                else position(event, session, previous, header.get("attribute_schemas"), numbers);
                if (told[1] == null || told[1].textValue().isEmpty()) told[1] = event.get("workspace_id");
                told[0] = event.get("hash");
                previous = missing ? null : told[0].textValue();
                JsonNode source = event.path("attributes").path("decoded");
                if (i == 1 && source.has("source_session_id")) {
                    Map<String, Object> gap = new TreeMap<>(Map.of("reason", "in_source_session", "session_id", source.get("source_session_id")));
                    for (String each : List.of("source_hash", "through_sequence")) if (source.has(each) && source.get(each).longValue() < 1L << 53) gap.put(each, source.get(each));
                    gaps.put("in_source_session", gap);
                }
                if (event.has("reason")) {
                    int at = i;
                    Map<String, Object> gap = gaps.computeIfAbsent(missing ? "missing" : event.get("reason").textValue(),
                        each -> new TreeMap<>(Map.of("reason", each, "count", 0, "first_sequence", at)));
                    gap.merge("count", 1, (one, more) -> (int) one + (int) more);
                    gap.put("last_sequence", at);
                }
            }
            require(trailer.get("count").longValue() == end[0] && isTextOrNull(trailer.get("last_hash")) && Objects.equals(trailer.get("last_hash").textValue(), previous));
        });
        String named = JSON.writeValueAsString(manifest.get("sections").get(0).get("gaps")), found = JSON.writeValueAsString(gaps.values());
        if (!named.equals(found) || manifest.get("end_sequence").longValue() != end[0] || !same(manifest.get("last_hash"), told[0])
            || !same(manifest.get("workspace_id"), told[1])) throw new Refuted("manifest_untrue");
    }

    static JsonNode line(String text) throws Exception {
        JsonNode told = JSON.readTree(text);
        require(told.isObject() && text.getBytes(UTF_8).length < 136 << 20);
        spelling(text);
        return told;
    }

    /** Refutes JSON in another spelling than that of an export: spaces, escapes that are not needed, numbers in another form. */
    static void spelling(String text) {
        int inside = 0;
        for (int i = 0; i < text.length(); i++) {
            int from = i;
            if (text.charAt(i) == '"') {
                while (text.charAt(++i) != '"') if (text.charAt(i) == '\\') require(ESCAPE.matcher(text).region(++i, text.length()).lookingAt());
                inside += i + 1 - from;
            } else if ("-0123456789".indexOf(text.charAt(i)) >= 0) {
                while ("+-.eE0123456789".indexOf(text.charAt(i + 1)) >= 0) i++;
                String number = text.substring(from, i + 1);
                require(number.equals(number.matches("-?[0-9]+") ? new BigInteger(number).toString() : shortest(Double.parseDouble(number))));
            } else require(!Character.isWhitespace(text.charAt(i)));
        }
        require(text.length() - inside < 1 << 20);
    }

    /** The shortest form that reads back as the same double, with an exponent below 0.0001 and from 10^16 on. */
    static String shortest(double number) {
        BigDecimal exact = new BigDecimal(number).abs(), found = exact;
        for (int digits = 17; digits > 0 && exact.round(new MathContext(digits)).doubleValue() == Math.abs(number); digits--) found = exact.round(new MathContext(digits));
        found = found.stripTrailingZeros();
        int exponent = found.precision() - found.scale() - 1;
        String sign = Double.compare(number, 0.0) < 0 ? "-" : "", digits = found.unscaledValue().toString(), plain = found.toPlainString();
        if (number != 0 && (exponent < -4 || exponent > 15)) return sign + digits.charAt(0) + (digits.length() > 1 ? "." + digits.substring(1) : "")
            + String.format(exponent < 0 ? "e-%02d" : "e+%02d", Math.abs(exponent));
        return sign + plain + (plain.contains(".") ? "" : ".0");
    }

    static void position(JsonNode event, String session, String previous, JsonNode schemas, Map<Integer, String> numbers) throws Exception {
        JsonNode content = event.get("content"), attributes = event.get("attributes"), key = content.get("key_reference");
        String state = content.get("state").textValue(), reason = event.path("reason").textValue();
        boolean shown = reason == null && !state.equals("none");
        require(names(event).equals(MEMBERS + (reason == null ? "" : " reason")) && is(event.get("kind"), reason == null ? "event" : "unavailable")
            && names(content).equals("state key_reference digest" + (shown ? " salt text" : "")) && is(event.get("session_id"), session)
            && (previous == null || is(event.get("previous_hash"), previous)));
        require(reason == null ? !shown || state.equals("sealed")
            : reason.equals("omitted") ? state.equals("omitted") : state.equals("sealed") && List.of("expired", "erased", "unreadable").contains(reason));
        if (shown) require(HEX.formatHex(sha(hex(content.get("salt"), 16), content.get("text").textValue().getBytes(UTF_8)))
            .equals(content.get("digest").textValue()));
        ByteArrayOutputStream said = new ByteArrayOutputStream(), links = new ByteArrayOutputStream(), reference = new ByteArrayOutputStream();
        said.write(hex(event.get("previous_hash"), 32));
        for (String each : BEFORE) said.write(lp(value(event, each)));
        require(event.get("links").isArray() && (key.isNull() || names(key).equals("subject_id session_id expiry_day")));
        for (JsonNode link : event.get("links")) {
            require(names(link).equals("relation id"));
            links.write(lp(value(link, "relation")));
            links.write(lp(value(link, "id")));
        }
        said.write(lp(links.toByteArray()));
        byte[] bytes = attributes.isNull() ? null : Base64.getDecoder().decode(attributes.get("bytes").textValue());
        if (bytes != null) {
            String schema = attributes.get("schema").textValue();
            require(names(attributes).equals("schema bytes decoded") && Base64.getEncoder().encodeToString(bytes).equals(attributes.get("bytes").textValue())
                && bytes[0] == 0 && schema.replaceFirst("\\.v[0-9]+$", "").equals("attributes/" + event.get("type").textValue().split("\\.")[0]));
            require(numbers.merge(ByteBuffer.wrap(bytes).getInt(1), schema, (one, other) -> one).equals(schema));
            ByteBuffer body = ByteBuffer.wrap(bytes, 5, bytes.length - 5).order(ByteOrder.LITTLE_ENDIAN);
            StringJoiner fields = new StringJoiner(" ");
            for (JsonNode field : schemas.get(schema).get("fields")) {
                JsonNode kinds = field.get("type"), kind = kinds.isArray() ? kinds.get(Math.toIntExact(varint(body))) : kinds;
                String type = kind.isObject() ? kind.get("type").textValue() : kind.textValue(), name = field.get("name").textValue();
                if (type.equals("null")) continue;
                fields.add(name);
                require(holds(type, body, attributes.get("decoded").get(name)));
            }
            require(!body.hasRemaining() && names(attributes.get("decoded")).equals(fields.toString()));
        }
        said.write(lp(bytes));
        said.write(lp(value(content, "state")));
        for (String each : key.isNull() ? List.<String>of() : List.of("subject_id", "session_id", "expiry_day")) reference.write(lp(value(key, each)));
        said.write(lp(key.isNull() ? null : reference.toByteArray()));
        said.write(lp(content.get("digest").isNull() ? null : hex(content.get("digest"), 32)));
        for (String each : List.of("sequence", "command_offset", "command_last", "accepted_at")) said.write(lp(value(event, each)));
        require(is(event.get("hash"), HEX.formatHex(sha(said.toByteArray()))));
    }

    /** Whether the next bytes (Avro) hold what is shown. */
    static boolean holds(String type, ByteBuffer body, JsonNode shown) throws Exception {
        switch (type) {
            case "boolean": return shown.isBoolean() && shown.booleanValue() == (body.get() != 0);
            case "int": case "long": return shown.isIntegralNumber() && shown.canConvertToLong() && shown.longValue() == varint(body);
            case "double":
                double number = body.getDouble();
                return Double.isFinite(number) ? shown.isDouble() && Double.compare(shown.doubleValue(), number) == 0
                    : is(shown, Double.isNaN(number) ? "nan" : number > 0 ? "inf" : "-inf");
            default:
                long length = varint(body);
                require(length >= 0 && length <= body.remaining());
                byte[] text = new byte[(int) length];
                body.get(text);
                return type.equals("string") && decoded(text).equals(shown.textValue());
        }
    }

    static long varint(ByteBuffer body) {
        long number = 0;
        for (int shift = 0; ; shift += 7) {
            byte each = body.get();
            require(shift < 64);
            number |= (long) (each & 0x7f) << shift;
            if (each >= 0) return (number >>> 1) ^ -(number & 1);
        }
    }

    /** As the chain has it: true and false are a byte, numbers eight, and in front of all stands a length. */
    static byte[] value(JsonNode of, String name) {
        JsonNode value = of.get(name);
        require(value.isNull() ? OPTIONAL.contains(name) : name.equals("command_last") ? value.isBoolean()
            : NUMBERS.contains(name) ? value.isIntegralNumber() && value.canConvertToLong() : value.isTextual());
        return value.isNull() ? null : value.isBoolean() ? new byte[] {(byte) (value.booleanValue() ? 1 : 0)} : value.isTextual()
            ? value.textValue().getBytes(UTF_8) : ByteBuffer.allocate(8).putLong(value.longValue()).array();
    }
    static byte[] lp(byte[] value) {
        return value == null ? new byte[] {-1, -1, -1, -1} : ByteBuffer.allocate(4 + value.length).putInt(value.length).put(value).array();
    }
}
