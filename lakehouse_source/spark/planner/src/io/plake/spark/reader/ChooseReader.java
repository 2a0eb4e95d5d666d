package io.plake.spark.reader;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.core.Feature;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.Vocabulary;
import io.plake.spark.scan.IsolatedScan;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PushVariantIntoScan;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.types.VariantType;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * Lets Spark's own Parquet reader read a scan of plake, where plake's planning says that it reads
 * every file exactly and faster.
 *
 * <p>The scan becomes a relation of files with the same columns, which Spark's own strategy then
 * plans. This is a strategy and not an optimizer rule, because it has to run after Spark has pushed
 * down conditions, columns, limits and aggregates, and has planned joins. Planning is asked once
 * for a scan: its answer is either files or the tasks of Python's reader.
 */
public final class ChooseReader extends SparkStrategy {

  /** These replace the session's settings. */
  private static final Map<String, String> OPTIONS = Map.of(
      "ignoreMissingFiles", "false",
      "ignoreCorruptFiles", "false",
      "datetimeRebaseMode", "CORRECTED",
      "int96RebaseMode", "CORRECTED");

  /**
   * Names of columns joined with dots stand for one another in Parquet's dictionary filter
   * (measured on Spark 4.3).
   */
  private static final Map<String, String> NO_DICTIONARY_FILTER =
      Map.of("parquet.filter.dictionary.enabled", "false");

  /**
   * Microseconds from 1900-01-02 and days from 1582-10-15, up to the end of year 9999.
   *
   * <p>Spark makes its Parquet filters of {@code java.sql} values. Later constants overflow.
   * Earlier ones are counted in the Julian calendar and in local time, where some are missing and
   * others are there twice: 1582-10-10 becomes 1582-10-15.
   */
  private static final long FIRST_MICROSECOND = -2_208_902_400_000_000L;
  private static final long AFTER_MICROSECONDS = 253_402_300_800_000_000L;
  private static final long FIRST_DAY = -141_427;
  private static final long AFTER_DAYS = 2_932_897;

  @Override
  public Seq<SparkPlan> apply(LogicalPlan plan) {
    LogicalPlan leaf = Relations.leaf(plan);
    List<SparkPlan> planned = List.of();
    if (leaf instanceof DataSourceV2ScanRelation relation && Relations.isOn()) {
      try {
        LogicalPlan changed = change(plan, relation);
        if (changed != null) {
          planned = List.of(planLater(changed));
        }
      } catch (LinkageError | RuntimeException e) {
        Feature.READER.failed(e);
      }
    }
    return asScala(planned).toSeq();
  }

  /** The plan over files, or null where Python reads. */
  private static LogicalPlan change(LogicalPlan plan, DataSourceV2ScanRelation relation) {
    if (!(relation.scan() instanceof IsolatedScan scan)) {
      return null;
    }
    var response = scan.response();
    scan.source().choose();
    if (response == null || !response.isSpark()) {
      return null;
    }
    for (LogicalPlan node = plan; node != relation; node = node.children().head()) {
      for (Expression term : terms(node)) {
        if (comesForFiles(term, response.list(Vocabulary.Files.PARTITIONED))) {
          scan.source().keepForKeys();
          return null;
        }
      }
    }
    Map<ExprId, Attribute> partitioned = new HashMap<>();
    Set<ExprId> unpushed = new HashSet<>();
    Set<ExprId> places = new HashSet<>();
    List<AttributeReference> output = new ArrayList<>();
    List<StructField> stored = new ArrayList<>();
    List<StructField> values = new ArrayList<>(
        Collections.nCopies(response.list(Vocabulary.Files.PARTITIONED).size(), null));
    for (AttributeReference column : asJava(relation.output())) {
      // Spark's Parquet reader acts on metadata of columns: on field ids and defaults.
      output.add(column.withMetadata(Metadata.empty()));
      StructField field = new StructField(column.name(), column.dataType(), true, Metadata.empty());
      int place = response.list(Vocabulary.Files.PARTITIONED).indexOf(column.name());
      if (place < 0) {
        stored.add(field);
      } else {
        values.set(place, field);
        partitioned.put(column.exprId(), column);
      }
      if (response.list(Vocabulary.Files.UNPUSHED).contains(column.name())) {
        unpushed.add(column.exprId());
      }
      if (response.places().containsKey(column.name())) {
        places.add(column.exprId());
      }
    }
    if (values.contains(null)) {
      return null; // plake answered about other columns than Spark reads
    }
    List<PlakeParquet.Layout> layouts = PlakeParquet.Layout.of(response);
    boolean isPlain = layouts.stream().allMatch(PlakeParquet.Layout::isPlain);
    PlakeFiles files = new PlakeFiles(
        scan.source(), response, new StructType(values.toArray(new StructField[0])), isPlain);
    Map<String, String> options = new HashMap<>(OPTIONS);
    if (!unpushed.isEmpty()) {
      options.putAll(NO_DICTIONARY_FILTER);
    }
    unpushed.addAll(places); // no file has these columns
    LogicalPlan swapped = new LogicalRelation(
        files.relation(
            new StructType(stored.toArray(new StructField[0])),
            isPlain ? new ParquetFileFormat() : new PlakeParquet(layouts),
            scala.collection.immutable.Map$.MODULE$.from(asScala(options)),
            SparkSession.active(), response.note),
        asScala(output).toSeq(), Option.empty(), false, Option.empty());
    // Spark ran its rule over relations of files before this one was there.
    return PushVariantIntoScan.apply(
        rebuild(plan, relation, swapped, new Hide(partitioned.keySet(), unpushed)));
  }

  private static LogicalPlan rebuild(
      LogicalPlan node, LogicalPlan old, LogicalPlan swapped, Hide hide) {
    if (node == old) {
      return swapped;
    }
    LogicalPlan below = rebuild(node.children().head(), old, swapped, hide);
    if (node instanceof Project project) {
      return new Project(project.projectList(), below);
    }
    Expression joined = null;
    for (Expression term : terms(node)) {
      Expression kept = hide.term(term, below != swapped);
      joined = kept == null ? joined : joined == null ? kept : new And(joined, kept);
    }
    return joined == null ? below : new Filter(joined, below);
  }

  /**
   * Whether a term is keys of a join that Spark's reader has no use for, and that are likely to
   * leave out much: keys of a column that is in the files. Spark makes most of them only if it
   * broadcasts the other side.
   */
  private static boolean comesForFiles(Expression term, List<?> partitioned) {
    if (!(term instanceof DynamicPruningSubquery keys)) {
      return false;
    }
    if (keys.onlyInBroadcast() && keys.buildQuery().stats().sizeInBytes().compare(
            scala.math.BigInt.apply(SQLConf.get().autoBroadcastJoinThreshold())) > 0) {
      return false;
    }
    for (Attribute column : asJava(keys.pruningKey().references())) {
      if (!partitioned.contains(column.name())) {
        return !areSpread(keys);
      }
    }
    return false;
  }

  /**
   * Whether all keys come from scans of plake whose conditions leave out few row groups. Then the
   * keys lie anywhere between the smallest and the largest one, and so do the rows to join.
   */
  private static boolean areSpread(DynamicPruningSubquery keys) {
    AttributeSet columns = AttributeSet.apply(keys.buildKeys());
    int found = 0;
    List<LogicalPlan> open = new ArrayList<>(List.of(keys.buildQuery()));
    while (!open.isEmpty()) {
      LogicalPlan node = open.remove(open.size() - 1);
      open.addAll(asJava(node.children()));
      if (node instanceof DataSourceV2ScanRelation relation) {
        int here = columns.intersect(relation.outputSet()).size();
        if (here > 0 && !readsMost(relation.scan())) {
          return false;
        }
        found += here;
      }
    }
    return found == columns.size();
  }

  private static boolean readsMost(Scan scan) {
    var response = scan instanceof IsolatedScan ? ((IsolatedScan) scan).response() : null;
    return response != null && response.counts.readMost();
  }

  /** The terms of the conjunction, where the node is a filter. */
  private static List<Expression> terms(LogicalPlan node) {
    List<Expression> found = new ArrayList<>();
    if (node instanceof Filter filter) {
      split(filter.condition(), found);
    }
    return found;
  }

  private static void split(Expression condition, List<Expression> found) {
    if (condition instanceof And and) {
      split(and.left(), found);
      split(and.right(), found);
    } else {
      found.add(condition);
    }
  }

  /**
   * Writes conditions in a form that Spark does not push into Parquet, where its reader would lose
   * rows: footers leave NaN out, dictionaries tell -0.0 from 0.0, some constants become others.
   */
  private static final class Hide {
    private final Set<ExprId> partitioned;
    private final Set<ExprId> unpushed;

    Hide(Set<ExprId> partitioned, Set<ExprId> unpushed) {
      this.partitioned = partitioned;
      this.unpushed = unpushed;
    }

    /**
     * The condition to apply, or null for one that only prunes.
     *
     * @param renamed a projection below may have given other names to columns
     */
    Expression term(Expression term, boolean renamed) {
      boolean onValues = true;
      boolean mustHide = renamed && !unpushed.isEmpty();
      for (Attribute column : asJava(term.references())) {
        onValues &= partitioned.contains(column.exprId());
        mustHide |= unpushed.contains(column.exprId());
      }
      if (onValues) {
        return term;
      }
      if (term instanceof DynamicPruning) {
        return null; // Spark's reader skips whole partitions only, and the join decides anyway
      }
      return mustHide || isUnsafe(term, null) ? term.transformUp(new Rewrite<>(Hide::hidden)) : term;
    }

    private static boolean isUnsafe(Expression part, Expression parent) {
      DataType type = part.dataType();
      boolean toNull = parent instanceof IsNull || parent instanceof IsNotNull;
      if ((type instanceof DoubleType || type instanceof FloatType) && !toNull
          || type instanceof StructType && !toNull && !(parent instanceof GetStructField)) {
        return true;
      }
      if (part instanceof Literal literal) {
        Object value = literal.value();
        return value == null && parent instanceof In || value != null && isFar(value, type);
      }
      if (part instanceof InSet in && in.hset().exists(
          value -> value == null || isFar(value, in.child().dataType()))) {
        return true;
      }
      return part.children().exists(child -> isUnsafe(child, part));
    }

    private static boolean isFar(Object value, DataType type) {
      boolean isDay = type instanceof DateType;
      if (!isDay && !(type instanceof TimestampType || type instanceof TimestampNTZType)) {
        return false;
      }
      long moment = ((Number) value).longValue();
      return moment < (isDay ? FIRST_DAY : FIRST_MICROSECOND)
          || moment >= (isDay ? AFTER_DAYS : AFTER_MICROSECONDS);
    }

    private static Expression hidden(Expression node) {
      // Files have no column of the name under which Spark reads a path.
      return !(node instanceof AttributeReference) || node.dataType() instanceof VariantType ? node
          : new Coalesce(asScala(List.of(node)).toSeq());
    }
  }
}
