package io.plake.spark.reader;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.core.Vocabulary;
import io.plake.spark.scan.AggregateResponse;
import io.plake.spark.scan.ReaderResponse;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.FileFormat$;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetUtils$;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * Spark's Parquet reader for files that are not as their version shows them: some of their rows are
 * deleted, columns were renamed, added or promoted after they were written, or a statement asks
 * where each row is stored.
 *
 * <p>For files of one layout it asks Spark's reader for the columns under the names that the files
 * have, and for the places of rows where some are deleted or a statement asks for them. {@link
 * FileBatches} makes batches of the scan's columns of what comes. Spark's reader itself converts
 * promoted types.
 *
 * <p>Executors load this class, {@link FileBatches} and {@link DeletedRows}.
 */
final class PlakeParquet extends ParquetFileFormat {
  private static final long serialVersionUID = 1;

  /** The column that Spark's reader fills with the place of each row in its file. */
  private static final String PLACE = ParquetFileFormat.ROW_INDEX_TEMPORARY_COLUMN_NAME();

  private final transient List<Layout> layouts;

  /** @param layouts by number: {@link FileBatches.Known#layout} names one for each file */
  PlakeParquet(List<Layout> layouts) {
    this.layouts = layouts;
  }

  /** Only the types count: settings of code generation decide what is done with the batches. */
  @Override
  public boolean supportBatch(SparkSession session, StructType schema) {
    return ParquetUtils$.MODULE$.isBatchReadSupportedForSchema(SQLConf.get(), schema);
  }

  /** Unknown: vectors may be constant, or leave rows out. */
  @Override
  public Option<Seq<String>> vectorTypes(StructType required, StructType parts, SQLConf conf) {
    return Option.empty();
  }

  @Override
  public Function1<PartitionedFile, Iterator<InternalRow>> buildReaderWithPartitionValues(
      SparkSession session, StructType dataSchema, StructType partitioned, StructType required,
      Seq<Filter> filters, scala.collection.immutable.Map<String, String> options,
      Configuration hadoop) {
    String key = FileFormat$.MODULE$.OPTION_RETURNING_BATCH();
    Option<String> wanted = options.get(key);
    // Spark's reader gives batches in any case. Where rows are wanted, they are taken out of these.
    Map<String, String> changed = new HashMap<>(asJava(options));
    changed.put(key, "true");
    scala.collection.immutable.Map<String, String> always =
        scala.collection.immutable.Map.from(asScala(changed));
    FileBatches.Reader[] readers = new FileBatches.Reader[2 * layouts.size()];
    for (int i = 0; i < readers.length; i++) {
      Layout layout = layouts.get(i / 2);
      boolean isCut = i % 2 == 1;
      if (isCut ? layout.isCut : layout.isWhole) {
        Columns columns = new Columns(layout, required, partitioned, isCut);
        // Spark's reader writes the columns that it is asked for into the configuration.
        Function1<PartitionedFile, Iterator<InternalRow>> reader =
            super.buildReaderWithPartitionValues(
                session, dataSchema, partitioned, columns.stored(), layout.usable(filters), always,
                new Configuration(hadoop));
        readers[i] = columns.reader(reader);
      }
    }
    return new FileBatches(readers, wanted.isDefined() && wanted.get().equals("true"));
  }

  /** How some files store the columns of the scan. */
  static final class Layout {
    private final Map<?, ?> changed;
    private final Map<?, ?> places;
    private boolean isWhole;
    private boolean isCut;

    /**
     * @param changed columns that are stored otherwise: see {@link Vocabulary.Files#LAYOUTS}
     * @param places columns that tell where a row is stored: see {@link Vocabulary.Files#PLACES}
     */
    Layout(Map<?, ?> changed, Map<?, ?> places) {
      this.changed = changed;
      this.places = places;
    }

    /** Those of the files of an answer. */
    static List<Layout> of(ReaderResponse response) {
      List<Layout> found = new ArrayList<>();
      for (Object changed : response.list(Vocabulary.Files.LAYOUTS)) {
        found.add(new Layout((Map<?, ?>) changed, response.places()));
      }
      for (int i = 0; i < response.list(Vocabulary.Files.LAYOUT_OF).size(); i++) {
        boolean isCut = response.list(Vocabulary.Files.DELETED).get(i) != null;
        Layout layout = found.get(((Number) response.list(Vocabulary.Files.LAYOUT_OF).get(i)).intValue());
        layout.isWhole |= !isCut;
        layout.isCut |= isCut;
      }
      return found;
    }

    /** Whether Spark's reader can read the files as they are. */
    boolean isPlain() {
      return changed.isEmpty() && !isCut;
    }

    /** The name of a column in the files; null where they lack it. */
    private String name(String column) {
      return changed.containsKey(column) ? part(column, 0) : column;
    }

    /** The value, as text, of a column that the files lack. */
    private String value(String column) {
      return part(column, 1);
    }

    private String part(String column, int place) {
      return (String) ((List<?>) changed.get(column)).get(place);
    }

    /** The filters that Spark's reader may use. It finds columns by the names in the files. */
    private Seq<Filter> usable(Seq<Filter> filters) {
      if (changed.isEmpty()) {
        return filters;
      }
      List<Filter> usable = new ArrayList<>();
      for (Filter filter : asJava(filters)) {
        boolean isUsable = true;
        for (String path : filter.references()) {
          // A path of fields is joined with dots, and a name with a dot is quoted.
          isUsable &= path.indexOf('`') < 0 && !changed.containsKey(path.split("\\.", 2)[0]);
        }
        if (isUsable) {
          usable.add(filter);
        }
      }
      return asScala(usable).toSeq();
    }
  }

  /** Where the columns of a scan come from in files of one layout. */
  private static final class Columns {
    private final List<StructField> stored = new ArrayList<>();
    private final FileBatches.Source[] sources;
    private final int place;

    Columns(Layout layout, StructType required, StructType partitioned, boolean isCut) {
      sources = new FileBatches.Source[required.length() + partitioned.length()];
      boolean hasPlaces = isCut;
      for (int i = 0; i < required.length(); i++) {
        StructField field = required.fields()[i];
        String name = layout.name(field.name());
        Object kind = layout.places.get(field.name());
        hasPlaces |= Vocabulary.MetadataColumn.POSITION.equals(kind)
            || Vocabulary.MetadataColumn.ROW.equals(kind);
        if (name != null) {
          int column = stored.size();
          stored.add(new StructField(name, field.dataType(), true, Metadata.empty()));
          sources[i] = kind == null ? FileBatches.stored(column)
              : FileBatches.moved(column, kind.equals(Vocabulary.MetadataColumn.ROW));
        } else if (kind == null) {
          sources[i] = FileBatches.constant(
              field.dataType(), AggregateResponse.value(layout.value(field.name()), field.dataType()));
        } else {
          sources[i] = switch ((String) kind) {
            case Vocabulary.MetadataColumn.FILE -> FileBatches.ofFile(FileBatches.Known::path);
            case Vocabulary.MetadataColumn.FILE_URI -> FileBatches.ofFile(FileBatches.Known::uri);
            case Vocabulary.MetadataColumn.FILE_SIZE -> FileBatches.ofFile(FileBatches.Known::size);
            default -> FileBatches.position();
          };
        }
      }
      place = hasPlaces ? stored.size() : -1;
      if (hasPlaces) {
        stored.add(new StructField(PLACE, DataTypes.LongType, true, Metadata.empty()));
      }
      for (int i = 0; i < partitioned.length(); i++) {
        sources[required.length() + i] = FileBatches.stored(stored.size() + i);
      }
    }

    StructType stored() {
      return new StructType(stored.toArray(new StructField[0]));
    }

    FileBatches.Reader reader(Function1<PartitionedFile, Iterator<InternalRow>> spark) {
      return new FileBatches.Reader(spark, sources, place);
    }
  }
}
