package io.plake.spark.core;

import java.lang.reflect.Field;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.execution.datasources.DataSourceManager;
import org.apache.spark.sql.internal.SessionState;

/**
 * The Python formats of a session, which copies of the session have too.
 *
 * <p>Spark copies a session for each stream. Its own class registers every format anew in the copy,
 * and so looks first for packages {@code pyspark_*} with a format of that name: the first stream
 * would wait until three Python processes have run.
 */
public final class KnownFormats extends DataSourceManager {
  private KnownFormats() {}

  /**
   * Puts it in the place of a session's formats, which stay the same. Python calls this.
   *
   * @throws ReflectiveOperationException this Spark keeps its formats otherwise
   */
  public static void keep(SessionState state) throws ReflectiveOperationException {
    KnownFormats made = new KnownFormats();
    Field formats = Relations.field(DataSourceManager.class, "runtimeDataSourceBuilders");
    formats.set(made, formats.get(state.dataSourceManager())); // shared: others hold the old one
    Relations.field(SessionState.class, "dataSourceManager").set(state, made);
  }

  @Override
  public DataSourceManager clone() {
    try {
      KnownFormats made = new KnownFormats();
      Field formats = Relations.field(DataSourceManager.class, "runtimeDataSourceBuilders");
      formats.set(made, new ConcurrentHashMap<Object, Object>((Map<?, ?>) formats.get(this)));
      return made;
    } catch (ReflectiveOperationException e) {
      return super.clone();
    }
  }
}
