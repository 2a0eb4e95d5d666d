package io.plake.spark.scan;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.core.Relations;
import io.plake.spark.core.Vocabulary;
import io.plake.spark.core.WrappedColumn;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.BasePythonRunner;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Option;
import scala.Product;
import scala.collection.Iterator;
import scala.collection.immutable.Map;

/**
 * Hands the Arrow batches of a Python source to Spark as they are.
 *
 * <p>Spark's own reader of a Python source starts the same worker, receives the same batches and
 * then copies every row out of them. Here they go straight into the compiled code of the query, as
 * those of Spark's Parquet reader do.
 *
 * <p>Executors load this class, {@link WrappedColumn} and those that {@code PlakeParquet} names.
 */
public final class BatchReads implements PartitionReaderFactory {

  private static final long serialVersionUID = 1L;

  private static final String JAR = "/plake-planner.jar";

  /** Spark's reader, which holds all that the worker has to be told. */
  private final PartitionReaderFactory rows;

  BatchReads(PartitionReaderFactory rows) {
    this.rows = rows;
  }

  /**
   * Why scans cannot come in batches; null where they can.
   *
   * @throws ReflectiveOperationException this Spark lacks what is needed
   */
  public static String obstacle() throws ReflectiveOperationException {
    SparkReader.get();
    return executorsHaveJar() ? null : "executors do not have plake-planner.jar";
  }

  /** Whether executors can load classes of the extension. */
  static boolean executorsHaveJar() {
    return asJava(SparkSession.active().sparkContext().listJars()).stream()
        .anyMatch(jar -> jar.endsWith(JAR));
  }

  /** Whether this session has not turned batches off. */
  static boolean areWanted() {
    return "true".equalsIgnoreCase(SQLConf.get().getConfString(Vocabulary.Setting.BATCHES, "true"));
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    return rows.createReader(partition);
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    try {
      return new Batches(SparkReader.get(), rows, partition);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("this executor runs another Spark than the driver", e);
    }
  }

  /** What Java cannot name of Spark's own reader. Looked up once per JVM. */
  private static final class SparkReader {
    private static volatile SparkReader found;

    private static final String EVALUATOR =
        MapInBatchEvaluatorFactory.class.getName() + "$MapInBatchEvaluator";

    private final Constructor<?> runner;
    private final Method evaluatorFactory;
    private final Field source = fieldOf("source");
    private final Field readFunction = fieldOf("pickledReadFunc");
    private final Field schema = fieldOf("outputSchema");
    private final Field jobArtifacts = fieldOf("jobArtifactUUID");
    private final Field session = fieldOf("sessionUUID");

    static SparkReader get() throws ReflectiveOperationException {
      if (found == null) {
        found = new SparkReader();
      }
      return found;
    }

    private SparkReader() throws ReflectiveOperationException {
      ClassLoader spark = MapInBatchEvaluatorFactory.class.getClassLoader();
      runner = Class.forName(EVALUATOR + "$$anon$1", true, spark)
          .getConstructor(Class.forName(EVALUATOR, true, spark), int[][].class);
      evaluatorFactory = UserDefinedPythonDataSource.class.getMethod(
          "createMapInBatchEvaluatorFactory", byte[].class, String.class, StructType.class,
          StructType.class, Map.class, Option.class, Option.class);
      // Methods that are called below. If one is missing, the driver must know: it can still
      // choose rows.
      runner.getDeclaringClass().asSubclass(BasePythonRunner.class)
          .getMethod("compute", Iterator.class, int.class, TaskContext.class);
      UserDefinedPythonDataSource.class.getMethod("readInputSchema");
      UserDefinedPythonDataSource.class.getMethod("createPythonTaskMetrics", Map.class);
      PythonCustomMetric.class.getMethod("pythonMetrics");
    }

    private static Field fieldOf(String name) throws NoSuchFieldException {
      return Relations.field(PythonPartitionReaderFactory.class, name);
    }

    UserDefinedPythonDataSource source(PartitionReaderFactory rows)
        throws ReflectiveOperationException {
      return (UserDefinedPythonDataSource) source.get(rows);
    }

    /** Starts the worker as Spark's `createReader` does, which then copies rows. */
    @SuppressWarnings("unchecked")
    Iterator<ColumnarBatch> start(
        PartitionReaderFactory rows, InputPartition partition, Map<String, SQLMetric> metrics)
        throws ReflectiveOperationException {
      Object factory = evaluatorFactory.invoke(
          source(rows), readFunction.get(rows), "read_from_data_source",
          UserDefinedPythonDataSource.readInputSchema(), schema.get(rows), metrics,
          jobArtifacts.get(rows), session.get(rows));
      Object evaluator = ((MapInBatchEvaluatorFactory) factory).createEvaluator();
      int[][] onlyArgument = {{0}};
      BasePythonRunner<Iterator<InternalRow>, ColumnarBatch> worker =
          (BasePythonRunner<Iterator<InternalRow>, ColumnarBatch>)
              runner.newInstance(evaluator, onlyArgument);
      InternalRow pickled = new GenericInternalRow(
          new Object[] {((Product) partition).productElement(1)});
      InternalRow argument = new GenericInternalRow(new Object[] {pickled});
      TaskContext task = TaskContext.get();
      return worker.compute(one(one(argument)), task.partitionId(), task);
    }

    private static <T> Iterator<T> one(T item) {
      return asScala(List.of(item).iterator());
    }
  }

  /** The batches of one partition. Each is valid until the next is asked for. */
  private static final class Batches implements PartitionReader<ColumnarBatch> {
    private final UserDefinedPythonDataSource source;
    private final Map<String, SQLMetric> metrics = PythonCustomMetric.pythonMetrics();
    private final Iterator<ColumnarBatch> received;

    Batches(SparkReader reader, PartitionReaderFactory rows, InputPartition partition)
        throws ReflectiveOperationException {
      source = reader.source(rows);
      received = reader.start(rows, partition, metrics);
    }

    @Override
    public boolean next() {
      return received.hasNext();
    }

    /** Python sends each batch as one column, a struct of the columns. */
    @Override
    public ColumnarBatch get() {
      ColumnarBatch batch = received.next();
      ArrowColumnVector struct = (ArrowColumnVector) batch.column(0);
      ColumnVector[] columns = new ColumnVector[((StructType) struct.dataType()).length()];
      for (int i = 0; i < columns.length; i++) {
        columns[i] = i == 0 ? new FirstColumn(struct.getChild(i)) : struct.getChild(i);
      }
      return new Borrowed(columns, batch.numRows());
    }

    /** Spark ends the worker and frees its batches with the task. */
    @Override
    public void close() {}

    @Override
    public CustomTaskMetric[] currentMetricsValues() {
      HashMap<String, Object> values = new HashMap<>();
      asJava(metrics).forEach((name, metric) -> values.put(name, metric.value()));
      return source.createPythonTaskMetrics(Map.from(asScala(values)));
    }
  }

  /**
   * A batch that does not close. Spark closes a batch after its last row, but its memory belongs to
   * the receiver, which loads the next batch into the same struct: a closed struct has no fields.
   */
  private static final class Borrowed extends ColumnarBatch {
    Borrowed(ColumnVector[] columns, int numRows) {
      super(columns, numRows);
    }

    @Override
    public void close() {}

    @Override
    public void closeIfFreeable() {}
  }

  /**
   * A column that does not tell Spark that it is Arrow's.
   *
   * <p>From 4.2 on, nodes that evaluate Python functions keep the batches of which the first column
   * is Arrow's, and read them when later ones have come: the memory is then another batch's. Of all
   * others they copy the rows.
   */
  private static final class FirstColumn extends WrappedColumn {
    FirstColumn(ColumnVector column) {
      super(column, column.dataType());
    }
  }
}
