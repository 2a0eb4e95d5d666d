package io.plake.spark.core;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;

/**
 * What a text of a time means: what Spark's cast makes of it, in the session's zone if it has none.
 *
 * <p>Options of reads are taken through {@link PlakeSource}, which hands them to Python as
 * instants.
 */
public final class SessionTimes {
  private static final Set<String> OPTIONS =
      Set.of("timestampasof", "startingtimestamp", "endingtimestamp");

  /** The same options; times are instants. A text that is no time stays: Python refuses it. */
  public static CaseInsensitiveStringMap in(CaseInsensitiveStringMap given) {
    Map<String, String> options = new HashMap<>(given.asCaseSensitiveMap());
    boolean changed = false;
    for (Map.Entry<String, String> option : options.entrySet()) {
      if (OPTIONS.contains(option.getKey().toLowerCase(Locale.ROOT))) {
        String instant = instant(option.getValue());
        changed |= instant != null;
        option.setValue(instant == null ? option.getValue() : instant);
      }
    }
    return changed ? new CaseInsensitiveStringMap(options) : given;
  }

  /** The instant of a text, as plake reads it; null where the text is no time. */
  public static String instant(String text) {
    Option<Object> moment = text == null ? Option.empty() : DateTimeUtils.stringToTimestamp(
        UTF8String.fromString(text.trim()),
        DateTimeUtils.getZoneId(SQLConf.get().sessionLocalTimeZone()));
    return moment.isDefined() ? text((Long) moment.get()) : null;
  }

  /** An instant as plake reads it. */
  public static String text(long microseconds) {
    return Instant.EPOCH.plus(microseconds, ChronoUnit.MICROS).toString();
  }
}
