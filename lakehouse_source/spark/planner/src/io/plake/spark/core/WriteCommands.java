package io.plake.spark.core;

import java.lang.reflect.Constructor;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.Map;

/** Makes Spark's commands that write, whose constructors differ from one Spark to the next. */
public final class WriteCommands {

  /** Fails where Spark lacks one. */
  public static void check() throws ReflectiveOperationException {
    constructor(AppendData.class);
    constructor(OverwriteByExpression.class);
  }

  /** @param given the arguments up to the options of the write */
  public static LogicalPlan made(Class<?> command, boolean byName, Object... given) {
    try {
      Constructor<?> found = constructor(command);
      Class<?>[] types = found.getParameterTypes();
      Object[] arguments = Arrays.copyOf(given, types.length);
      for (int i = given.length; i < types.length; i++) {
        boolean isFirst = i == given.length; // of the flags
        arguments[i] = types[i] == boolean.class ? byName && isFirst : (Object) Option.empty();
      }
      return (LogicalPlan) found.newInstance(arguments);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Up to the options of the write the parameters are alike; flags, first by name, follow. */
  private static Constructor<?> constructor(Class<?> command) throws NoSuchMethodException {
    for (Constructor<?> found : command.getConstructors()) {
      Class<?>[] types = found.getParameterTypes();
      int options = Arrays.asList(types).indexOf(Map.class);
      if (options >= 2 && options < types.length - 1
          && types[0].isAssignableFrom(DataSourceV2Relation.class)
          && types[options - 1] == LogicalPlan.class && types[options + 1] == boolean.class
          && Arrays.stream(types, options + 1, types.length)
              .allMatch(type -> type == boolean.class || type == Option.class)) {
        return found;
      }
    }
    throw new NoSuchMethodException(command.getSimpleName() + "(table, ..., query, options, ...)");
  }

  /** The same write with other options. */
  public record WriteInfo(LogicalWriteInfo given, CaseInsensitiveStringMap options)
      implements LogicalWriteInfo {
    @Override
    public String queryId() {
      return given.queryId();
    }

    @Override
    public StructType schema() {
      return given.schema();
    }
  }
}
