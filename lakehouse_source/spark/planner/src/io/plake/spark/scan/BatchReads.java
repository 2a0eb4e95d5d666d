package io.plake.spark.scan;

import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.core.PythonTask;
import io.plake.spark.core.Relations;
import io.plake.spark.core.WrappedColumn;
import java.lang.reflect.Field;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Option;
import scala.Product;
import scala.collection.Iterator;

/**
 * Hands the Arrow batches of a Python source to Spark as they are.
 *
 * <p>Spark's own reader of a Python source starts the same worker, receives the same batches and
 * then copies every row out of them. Here they go straight into the compiled code of the query, as
 * those of Spark's Parquet reader do.
 *
 * <p>Executors load this class, {@link WrappedColumn}, {@link PythonTask} and those that {@code
 * PlakeParquet} names.
 */
public final class BatchReads implements PartitionReaderFactory {

  private static final long serialVersionUID = 1L;

  /** Spark's reader, which holds all that the worker has to be told. */
  private final PartitionReaderFactory rows;

  BatchReads(PartitionReaderFactory rows) {
    this.rows = rows;
  }

  /**
   * Whether scans of this session come in batches.
   *
   * @throws ReflectiveOperationException this Spark lacks what is needed
   */
  static boolean arePossible() throws ReflectiveOperationException {
    return PythonTask.isPossible() && SparkReader.get() != null;
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

    private SparkReader() throws ReflectiveOperationException {}

    private static Field fieldOf(String name) throws NoSuchFieldException {
      return Relations.field(PythonPartitionReaderFactory.class, name);
    }
  }

  /** The batches of one partition. */
  private static final class Batches implements PartitionReader<ColumnarBatch> {
    private final PythonTask task;
    private final Iterator<ColumnarBatch> received;

    @SuppressWarnings("unchecked")
    Batches(SparkReader reader, PartitionReaderFactory rows, InputPartition partition)
        throws ReflectiveOperationException {
      task = new PythonTask((UserDefinedPythonDataSource) reader.source.get(rows));
      InternalRow pickled = new GenericInternalRow(
          new Object[] {((Product) partition).productElement(1)});
      InternalRow argument = new GenericInternalRow(new Object[] {pickled});
      received = task.started(
          (byte[]) reader.readFunction.get(rows), "read_from_data_source",
          UserDefinedPythonDataSource.readInputSchema(), (StructType) reader.schema.get(rows),
          (Option<String>) reader.jobArtifacts.get(rows),
          (Option<String>) reader.session.get(rows), one(one(argument)));
    }

    private static <T> Iterator<T> one(T item) {
      return asScala(List.of(item).iterator());
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

    @Override
    public void close() {}

    @Override
    public CustomTaskMetric[] currentMetricsValues() {
      return task.metrics();
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
