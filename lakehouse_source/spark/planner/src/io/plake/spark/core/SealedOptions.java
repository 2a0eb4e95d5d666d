package io.plake.spark.core;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Options that this extension sets, and how they are told from those of a user.
 *
 * <p>Options come from everywhere: {@code OPTIONS}, {@code WITH}, table properties, a plan that was
 * seen before. Those of the extension have names of their own and a seal beside them, a MAC over
 * all of them by a key that this JVM makes and nothing outside of it ever sees: no plan, setting,
 * log, file or process. A set without the right seal is refused where the source is called, and
 * Python takes such options only from the class that {@link PlakeSource} names there.
 */
public final class SealedOptions {
  private static final String ALGORITHM = "HmacSHA256";
  private static final byte[] KEY = new byte[32];

  static {
    new SecureRandom().nextBytes(KEY);
  }

  /** Tells whether a name is of an option that the extension sets. */
  public static boolean isOwn(String name) {
    return name.toLowerCase(Locale.ROOT).startsWith(Vocabulary.Option.OWN);
  }

  /** Adds to what the extension tells Python; what is told already must be sealed. */
  public static void put(Map<String, String> options, String key, JsonNode value) {
    TreeMap<String, String> own = checked(options);
    String before = own.get(Vocabulary.Envelope.NAME);
    var message = before == null ? Envelope.object() : Envelope.requestOf(before);
    message.set(key, value);
    own.put(Vocabulary.Envelope.NAME, Envelope.request(message.toString()));
    put(options, own);
  }

  public static void put(Map<String, String> options, String key, String value) {
    put(options, key, TextNode.valueOf(value));
  }

  /** Sets an option that only the extension reads, such as {@link Vocabulary.Option#VIEW}. */
  public static void mark(Map<String, String> options, String name, String value) {
    TreeMap<String, String> own = checked(options);
    own.put(name, value);
    put(options, own);
  }

  /** An option of {@link #mark}; null where it is not set. */
  public static String marked(CaseInsensitiveStringMap options, String name) {
    return options.containsKey(name) ? checked(options.asCaseSensitiveMap()).get(name) : null;
  }

  private static void put(Map<String, String> options, TreeMap<String, String> own) {
    options.keySet().removeIf(SealedOptions::isOwn);
    options.putAll(own);
    options.put(Vocabulary.Option.SEAL, seal(own));
  }

  /**
   * The options with which Python is called, without seals.
   *
   * @throws org.apache.spark.sql.AnalysisException one has a name of the extension's and no seal,
   *     undeclared
   */
  static CaseInsensitiveStringMap opened(CaseInsensitiveStringMap given) {
    Map<String, String> options = new HashMap<>(given.asCaseSensitiveMap());
    Map<String, String> own = checked(options);
    options.keySet().removeIf(SealedOptions::isOwn);
    options.putAll(own);
    options.remove(Vocabulary.Option.VIEW); // these are for the extension only
    options.remove(Vocabulary.Option.CONDITIONS);
    return new CaseInsensitiveStringMap(options);
  }

  /** Tells whether the options have one that the extension sets; they are sealed then. */
  static boolean areIn(Map<String, String> options) {
    return options.keySet().stream().anyMatch(SealedOptions::isOwn);
  }

  /** Those of the extension, without their seal, which must be right. */
  private static TreeMap<String, String> checked(Map<String, String> options) {
    TreeMap<String, String> own = new TreeMap<>();
    String seal = null;
    String first = null;
    for (Map.Entry<String, String> option : options.entrySet()) {
      String name = option.getKey().toLowerCase(Locale.ROOT);
      if (name.equals(Vocabulary.Option.SEAL)) {
        seal = option.getValue();
      } else if (isOwn(name)) {
        own.put(name, option.getValue());
      } else {
        continue;
      }
      first = option.getKey();
    }
    if (first != null && (seal == null || !MessageDigest.isEqual(
        seal.getBytes(StandardCharsets.UTF_8), seal(own).getBytes(StandardCharsets.UTF_8)))) {
      throw Refusal.because("[PLAKE_INVALID_OPTION] option '" + first + "': is set by plake's"
          + " planner extension only. Leave it out.");
    }
    return own;
  }

  private static String seal(TreeMap<String, String> own) {
    try {
      Mac mac = Mac.getInstance(ALGORITHM);
      mac.init(new SecretKeySpec(KEY, ALGORITHM));
      own.forEach((name, value) -> {
        for (String text : Arrays.asList(name, value)) {
          byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
          mac.update((bytes.length + ":").getBytes(StandardCharsets.UTF_8));
          mac.update(bytes);
        }
      });
      return HexFormat.of().formatHex(mac.doFinal());
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException(e);
    }
  }
}
