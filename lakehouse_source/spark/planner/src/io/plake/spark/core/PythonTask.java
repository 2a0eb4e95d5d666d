package io.plake.spark.core;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.List;
import java.util.Properties;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.BasePythonRunner;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.execution.datasources.v2.python.PythonBatchWriterFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Map;

/**
 * The worker of a Python source in one task: batches of rows go in, Arrow batches come out.
 *
 * <p>Spark's own reader and writer start the same worker and handle row by row what could be handled
 * batch by batch. Executors load this class, and those that name it.
 */
public final class PythonTask {
  private static final String JAR = "/plake-planner.jar";
  private static final String EVALUATOR =
      MapInBatchEvaluatorFactory.class.getName() + "$MapInBatchEvaluator";
  private static final String MOST_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch";

  private final UserDefinedPythonDataSource source;
  private final Map<String, SQLMetric> metrics = PythonCustomMetric.pythonMetrics();

  public PythonTask(UserDefinedPythonDataSource source) {
    this.source = source;
  }

  /**
   * Why rows cannot come and go in batches; null where they can.
   *
   * @throws ReflectiveOperationException this Spark lacks what is needed
   */
  public static String obstacle() throws ReflectiveOperationException {
    SparkRunner.get();
    return executorsHaveJar() ? null : "executors do not have plake-planner.jar";
  }

  /** Whether executors can load classes of the extension. */
  public static boolean executorsHaveJar() {
    return asJava(SparkSession.active().sparkContext().listJars()).stream()
        .anyMatch(jar -> jar.endsWith(JAR));
  }

  /** Whether rows of this session come and go in batches. */
  public static boolean isPossible() {
    try {
      // A session can turn them off.
      String wanted = SQLConf.get().getConfString(Vocabulary.Setting.BATCHES, "true");
      if (!"true".equalsIgnoreCase(wanted)) {
        return false;
      }
      String obstacle = obstacle();
      if (obstacle != null) {
        Feature.BATCHES.failed(obstacle);
      }
      return obstacle == null;
    } catch (LinkageError | ReflectiveOperationException | RuntimeException e) {
      Feature.BATCHES.failed(e);
      return false;
    }
  }

  /**
   * Starts the worker.
   *
   * <p>Spark ends it, and frees its batches, with the task. Each batch is valid until the next is
   * asked for.
   *
   * @param function pickled
   * @param kind which of Spark's functions runs it
   * @param rows for each batch its rows: Spark would compute the bytes of the batch after each row
   */
  public Iterator<ColumnarBatch> started(
      byte[] function, String kind, StructType input, StructType output, Option<String> artifacts,
      Option<String> session, Iterator<Iterator<InternalRow>> rows) {
    TaskContext task = TaskContext.get();
    Properties settings = task.getLocalProperties();
    Object most = settings.setProperty(MOST_BYTES, String.valueOf(Integer.MAX_VALUE));
    try {
      return SparkRunner.get().made(source.createMapInBatchEvaluatorFactory(
          function, kind, input, output, metrics, artifacts, session))
          .compute(rows, task.partitionId(), task);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("this executor runs another Spark than the driver", e);
    } finally {
      if (most == null) {
        settings.remove(MOST_BYTES);
      } else {
        settings.put(MOST_BYTES, most);
      }
    }
  }

  public CustomTaskMetric[] metrics() {
    HashMap<String, Object> values = new HashMap<>();
    asJava(metrics).forEach((name, metric) -> values.put(name, metric.value()));
    return source.createPythonTaskMetrics(Map.from(asScala(values)));
  }

  /** What Java cannot name of Spark's own way to start a worker. Looked up once per JVM. */
  private static final class SparkRunner {
    private static volatile SparkRunner found;

    private final Constructor<?> runner;

    static SparkRunner get() throws ReflectiveOperationException {
      if (found == null) {
        found = new SparkRunner();
      }
      return found;
    }

    private SparkRunner() throws ReflectiveOperationException {
      ClassLoader spark = MapInBatchEvaluatorFactory.class.getClassLoader();
      runner = Class.forName(EVALUATOR + "$$anon$1", true, spark)
          .getConstructor(Class.forName(EVALUATOR, true, spark), int[][].class);
      // Methods that are called. If one is missing, the driver must know: it can still choose rows.
      runner.getDeclaringClass().asSubclass(BasePythonRunner.class)
          .getMethod("compute", Iterator.class, int.class, TaskContext.class);
      Method factory = UserDefinedPythonDataSource.class.getMethod(
          "createMapInBatchEvaluatorFactory", byte[].class, String.class, StructType.class,
          StructType.class, Map.class, Option.class, Option.class);
      factory.getReturnType().asSubclass(MapInBatchEvaluatorFactory.class);
      UserDefinedPythonDataSource.class.getMethod("createPythonTaskMetrics", Map.class);
      PythonCustomMetric.class.getMethod("pythonMetrics");
      TaskContext.class.getMethod("getLocalProperties");
      SQLConf.class.getMethod("arrowMaxBytesPerBatch");
      for (String field : List.of(
          "source", "pickledWriteFunc", "inputSchema", "jobArtifactUUID", "sessionUUID")) {
        PythonBatchWriterFactory.class.getMethod(field);
      }
    }

    @SuppressWarnings("unchecked")
    BasePythonRunner<Iterator<InternalRow>, ColumnarBatch> made(MapInBatchEvaluatorFactory factory)
        throws ReflectiveOperationException {
      int[][] onlyArgument = {{0}};
      return (BasePythonRunner<Iterator<InternalRow>, ColumnarBatch>)
          runner.newInstance(factory.createEvaluator(), onlyArgument);
    }
  }
}
