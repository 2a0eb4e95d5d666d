package io.plake.spark.core;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.internal.SQLConf;

/** The catalogs of plake in a session's settings. */
public final class PlakeCatalogs {
  private static final String PREFIX = "spark.sql.catalog.";

  /** Spark's own catalog, which needs no setting. */
  public static final String OF_SESSION = "spark_catalog";

  /** Names, not classes: 4.1 cannot load the catalog with views. */
  private static final Set<String> CLASSES =
      Set.of("io.plake.spark.PlakeCatalog", "io.plake.spark.PlakeViewCatalog");

  /** Tells whether a name is that of such a catalog. */
  public static boolean isOne(String catalog) {
    return CLASSES.contains(SQLConf.get().getConfString(PREFIX + catalog, ""));
  }

  /** The catalog in which Spark looks for a name of a table. */
  public static String catalogOf(SparkSession session, List<String> table) {
    boolean isNamed = table.size() > 1 && (OF_SESSION.equals(table.get(0))
        || !SQLConf.get().getConfString(PREFIX + table.get(0), "").isEmpty());
    return isNamed ? table.get(0) : session.catalog().currentCatalog();
  }

  /** A catalog whose tables have these options. The session gets one where they are not its own. */
  public static String with(Map<String, String> options) {
    List<String> known = names();
    if (options.isEmpty() && !known.isEmpty()) {
      return known.contains(Relations.SOURCE) ? Relations.SOURCE : known.get(0);
    }
    String name = Relations.SOURCE + "_" + UUID.nameUUIDFromBytes(
        new TreeMap<>(options).toString().getBytes(StandardCharsets.UTF_8)).toString().replace('-', '_');
    options.forEach((key, value) -> SQLConf.get().setConfString(PREFIX + name + "." + key, value));
    SQLConf.get().setConfString(PREFIX + name, "io.plake.spark.PlakeCatalog");
    return name;
  }

  /** Their names, in order. */
  public static List<String> names() {
    return asJava(SQLConf.get().getAllConfs()).entrySet().stream()
        .filter(one -> one.getKey().startsWith(PREFIX) && CLASSES.contains(one.getValue()))
        .map(one -> one.getKey().substring(PREFIX.length())).sorted().toList();
  }
}
