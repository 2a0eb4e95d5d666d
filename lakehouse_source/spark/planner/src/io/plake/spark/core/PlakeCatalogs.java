package io.plake.spark.core;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.internal.SQLConf;
import scala.Tuple2;
import scala.collection.Iterator;

/** The catalogs of plake in a session's settings. */
public final class PlakeCatalogs {
  private static final String PREFIX = "spark.sql.catalog.";

  /** Names, not classes: 4.1 cannot load the catalog with views. */
  private static final Set<String> CLASSES =
      Set.of("io.plake.spark.PlakeCatalog", "io.plake.spark.PlakeViewCatalog");

  /** Tells whether a name is that of such a catalog. */
  public static boolean isOne(String catalog) {
    return CLASSES.contains(SQLConf.get().getConfString(PREFIX + catalog, ""));
  }

  /** Their names, in order. */
  public static List<String> names() {
    List<String> found = new ArrayList<>();
    Iterator<Tuple2<String, String>> all = SQLConf.get().getAllConfs().iterator();
    while (all.hasNext()) {
      Tuple2<String, String> setting = all.next();
      if (setting._1().startsWith(PREFIX) && CLASSES.contains(setting._2())) {
        found.add(setting._1().substring(PREFIX.length()));
      }
    }
    Collections.sort(found);
    return found;
  }
}
