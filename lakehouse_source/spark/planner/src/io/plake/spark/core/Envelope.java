package io.plake.spark.core;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.types.Metadata;

/**
 * The envelope of every message between this JVM and plake's Python: JSON with a version.
 *
 * <p>The other side is {@code lakehouse_source/spark/protocol/messages.py}, and
 * {@code docs/protocol.md} tells which way each message goes.
 */
public final class Envelope {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int DIGITS = 12;

  public static ObjectNode object() {
    return JSON.createObjectNode();
  }

  /** Conditions, as a list of messages. */
  public static ArrayNode list(Metadata[] terms) {
    ArrayNode found = JSON.createArrayNode();
    for (Metadata term : terms) {
      found.add(parsed(term.json()));
    }
    return found;
  }

  /** @param part a part of what {@link #responseIn} gave */
  public static JsonNode tree(Object part) {
    return JSON.valueToTree(part);
  }

  /** @param body JSON */
  public static String request(String body) {
    return "{\"" + Vocabulary.Envelope.PROTOCOL + "\":\"" + Vocabulary.Envelope.NUMBER + "\",\""
        + Vocabulary.Envelope.REQUEST + "\":" + body + "}";
  }

  /** The request in an envelope of this JVM. */
  static ObjectNode requestOf(String text) {
    return (ObjectNode) parsed(text).get(Vocabulary.Envelope.REQUEST);
  }

  /**
   * The answer in an envelope.
   *
   * @throws org.apache.spark.sql.AnalysisException what plake refused, undeclared
   */
  static JsonNode response(String text) {
    JsonNode body = parsed(text);
    check(body.path(Vocabulary.Envelope.PROTOCOL).asText());
    if (body.has(Vocabulary.Envelope.ERROR)) {
      throw Refusal.of(body.get(Vocabulary.Envelope.ERROR));
    }
    return body.get(Vocabulary.Envelope.RESPONSE);
  }

  /**
   * The answer in the bytes of an object that Python pickled, as plain lists, maps, texts and
   * numbers; null where there is none. The pickle itself is not read.
   */
  public static Map<?, ?> responseIn(byte[] pickle) {
    String bytes = new String(pickle, StandardCharsets.ISO_8859_1);
    int at = bytes.indexOf(Vocabulary.Envelope.BEGIN);
    if (at < 0) {
      return null;
    }
    int length = at + Vocabulary.Envelope.BEGIN.length();
    int from = length + DIGITS + 1;
    int size = Integer.parseInt(bytes.substring(length, length + DIGITS));
    try {
      Map<?, ?> body = JSON.readValue(bytes.substring(from, from + size), Map.class);
      check(body.get(Vocabulary.Envelope.PROTOCOL));
      return (Map<?, ?>) body.get(Vocabulary.Envelope.RESPONSE);
    } catch (JsonProcessingException e) {
      throw new IllegalStateException(e);
    }
  }

  private static void check(Object number) {
    if (!Vocabulary.Envelope.NUMBER.equals(number)) {
      throw Refusal.because("[PLAKE_INVALID_OPTION] plake-planner.jar is of another release than the"
          + " Python package lakehouse_source. Give Spark the jar of the package:"
          + " lakehouse_source.spark.planner_jar() tells where it is.");
    }
  }

  /** Texts by name, of a message that Python made. */
  public static Map<String, String> texts(String json) {
    Map<String, String> found = new HashMap<>();
    parsed(json).properties().forEach(
        member -> found.put(member.getKey(), member.getValue().asText()));
    return found;
  }

  private static JsonNode parsed(String text) {
    try {
      return JSON.readTree(text);
    } catch (JsonProcessingException e) {
      throw new IllegalStateException(e);
    }
  }
}
