package io.plake.spark.catalog;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import io.plake.spark.core.PlakeCatalogs;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.WriteCommands;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel;
import org.apache.spark.sql.catalyst.analysis.ResolvedFieldName;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.AlterColumnSpec;
import org.apache.spark.sql.catalyst.plans.logical.AlterColumns;
import org.apache.spark.sql.catalyst.plans.logical.AnalyzeColumn;
import org.apache.spark.sql.catalyst.plans.logical.AnalyzeTable;
import org.apache.spark.sql.catalyst.plans.logical.DescribeRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.NoopCommand;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.ShowCreateTable;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedTableSpec;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableWritePrivilege;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/** Rules for single statements about tables of plake. */
public final class TableStatements {
  private TableStatements() {}

  static boolean isOurs(LogicalPlan table) {
    return table instanceof ResolvedTable found && found.table() instanceof PlakeTable;
  }

  /** A command that does nothing. Connect counts on a command where the user gave one. */
  public static LogicalPlan nothing(String name) {
    return new NoopCommand(name, asScala(List.<String>of()).toSeq());
  }

  /**
   * {@code ANALYZE TABLE} of a table of plake: nothing is left to do.
   *
   * <p>Every commit stores the counts and bounds of its files, and scans tell Spark how many rows
   * they give. Spark itself refuses the statement for tables of other catalogs than its own.
   */
  public static final class Analyze extends Rule<LogicalPlan> {

    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      if (plan instanceof AnalyzeColumn columns && isOurs(columns.child())
          && columns.columnNames().isDefined()) {
        checkColumns(
            ((ResolvedTable) columns.child()).table(), asJava(columns.columnNames().get()));
      }
      return plan instanceof AnalyzeTable table && isOurs(table.child())
          || plan instanceof AnalyzeColumn columns && isOurs(columns.child())
          ? nothing("ANALYZE TABLE") : plan.transformUp(new Rewrite<>(Analyze::shown));
    }

    /** {@code SHOW CREATE TABLE} would name {@code PARTITIONED BY (cluster_by(...))}. */
    private static LogicalPlan shown(LogicalPlan node) {
      if (isOurs(node)) {
        ((PlakeTable) ((ResolvedTable) node).table()).isOfStatement = true;
      }
      if (node instanceof DescribeRelation described && isOurs(described.relation())) {
        ((PlakeTable) ((ResolvedTable) described.relation()).table()).isDescribed = true;
      }
      return node instanceof ShowCreateTable created && isOurs(created.child())
          ? ComputedColumns.created(created, (ResolvedTable) created.child()) : node;
    }

    private static void checkColumns(Table table, List<String> names) {
      for (String name : names) {
        if (Arrays.stream(table.columns()).noneMatch(one -> one.name().equalsIgnoreCase(name))) {
          throw Refusal.because(table.name() + " has no column " + name + ".");
        }
      }
    }
  }

  /**
   * {@code ALTER TABLE … ALTER COLUMN … SET NOT NULL} of a table of plake.
   *
   * <p>Spark refuses it for every column that may be NULL, because no rows are looked at. plake
   * looks, under the lock of the commit: its statistics must show that no live file has a NULL
   * there. So the statement gets a column that cannot be NULL for Spark's check, and the catalog is
   * asked for the change.
   */
  public static final class NotNullColumns extends Rule<LogicalPlan> {

    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      return plan instanceof AlterColumns altered && isOurs(altered.table())
          ? plan.mapExpressions(NotNullColumns::passing) : plan;
    }

    private static Expression passing(Expression change) {
      if (!(change instanceof AlterColumnSpec spec)) {
        return change;
      }
      if (!spec.newNullability().contains(false)
          || !(spec.column() instanceof ResolvedFieldName column) || !column.field().nullable()) {
        return change;
      }
      StructField field = column.field();
      List<Expression> children = new ArrayList<>(asJava(spec.children()));
      children.set(children.indexOf(column), new ResolvedFieldName(
          column.path(),
          new StructField(field.name(), field.dataType(), false, field.metadata())));
      return spec.withNewChildren(asScala(children).toSeq());
    }
  }

  /**
   * Lets {@code plake.`/path` TIMESTAMP AS OF current_timestamp()} be read.
   *
   * <p>Spark looks for the table once the moment is resolved. A function is resolved too late for a
   * path: by then Spark has taken it for a query on a file, which plake cannot answer. So the
   * moment is resolved here, before tables are.
   */
  public static final class TimesOfPaths extends Rule<LogicalPlan> {
    private final SparkSession session;

    public TimesOfPaths(SparkSession session) {
      this.session = session;
    }

    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      return plan.transformUp(new Rewrite<>(this::changed));
    }

    private LogicalPlan changed(LogicalPlan node) {
      if (!(node instanceof RelationTimeTravel read)) {
        return node;
      }
      return read.timestamp().exists(moment -> !moment.resolved())
          && read.relation() instanceof UnresolvedRelation table && isPath(table)
          ? resolved(read) : read;
    }

    private static boolean isPath(UnresolvedRelation table) {
      List<String> parts = asJava(table.multipartIdentifier());
      return parts.size() == 2 && parts.get(1).contains("/");
    }

    /** With the moment as Spark's analyzer resolves it; where it cannot, Spark says so later. */
    private LogicalPlan resolved(RelationTimeTravel read) {
      NamedExpression moment = new Alias(
          read.timestamp().get(), "moment", NamedExpression.newExprId(),
          asScala(List.<String>of()).toSeq(), Option.empty(),
          asScala(List.<String>of()).toSeq());
      LogicalPlan query = new Project(asScala(List.of(moment)).toSeq(), new OneRowRelation());
      return session.sessionState().analyzer().execute(query) instanceof Project analyzed
          && analyzed.resolved() && analyzed.projectList().head() instanceof Alias found
          ? new RelationTimeTravel(read.relation(), Option.apply(found.child()), read.version())
          : read;
    }
  }

  /**
   * Takes Spark's default format away from a table of plake's catalog that a frame or a stream
   * creates: {@code saveAsTable}, {@code toTable} and {@code createTable} name it where the user
   * names none. A format that arrives is therefore one that somebody wrote, and plake refuses
   * others than its own.
   */
  public static final class FrameFormats extends Rule<LogicalPlan> {
    private final SparkSession session;

    public FrameFormats(SparkSession session) {
      this.session = session;
    }

    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      return plan.transformUp(new Rewrite<>(this::created));
    }

    private LogicalPlan created(LogicalPlan node) {
      if (node.origin().sqlText().isDefined() || node.children().isEmpty()
          || !(node.children().head() instanceof UnresolvedIdentifier name)) {
        return node;
      }
      List<String> parts = asJava(name.nameParts());
      if (!PlakeCatalogs.isOne(PlakeCatalogs.catalogOf(session, parts))) {
        return node;
      }
      return Rewrite.copy(node, part ->
          part instanceof UnresolvedTableSpec table ? withoutDefault(table) : part);
    }

    private static Expression withoutDefault(UnresolvedTableSpec table) {
      boolean isDefault = table.provider().exists(
          SQLConf.get().defaultDataSourceName()::equalsIgnoreCase);
      return isDefault
          ? Rewrite.<Expression>copy(
              table, part -> part == table.provider() ? Option.empty() : part) : table;
    }
  }

  /**
   * Makes {@code mode("overwrite").option("replaceWhere", …).saveAsTable(t)} replace rows of a
   * table that is there, as {@code save(path)} does.
   *
   * <p>Spark plans {@code saveAsTable} as a new table in the place of the old one. The condition
   * stays an option, which plake's writer reads.
   */
  public static final class ReplaceWhereByName extends Rule<LogicalPlan> {
    private static final Set<String> CONDITIONS = Set.of("replaceWhere", "overwriteWhere");

    private final SparkSession session;

    public ReplaceWhereByName(SparkSession session) {
      this.session = session;
    }

    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      if (!(plan instanceof ReplaceTableAsSelect made) || !Relations.isOn()
          || !(made.name() instanceof UnresolvedIdentifier name)) {
        return plan;
      }
      Map<String, String> options = new HashMap<>(asJava(made.writeOptions()));
      if (CONDITIONS.stream().noneMatch(new CaseInsensitiveStringMap(options)::containsKey)) {
        return plan;
      }
      ChangesByName.Found found = ChangesByName.find(session, asJava(name.nameParts()));
      if (found == null) {
        return plan; // a new table, or one of another format
      }
      List<String> given = TableRequests.columns(
          asJava(made.partitioning()).toArray(new Transform[0]));
      List<String> columns = List.of(found.table().partitionSchema().fieldNames());
      if (!given.isEmpty() && !given.equals(columns)) {
        throw Refusal.because("The rows of " + found.table().name() + " are partitioned by "
            + columns + ", and partitionBy names " + given
            + ": leave it out where rows are replaced.");
      }
      UnresolvedRelation target = new UnresolvedRelation(
          name.nameParts(), CaseInsensitiveStringMap.empty(), false)
          .requireWritePrivileges(scala.collection.immutable.Set.from(asScala(
              Set.of(TableWritePrivilege.INSERT, TableWritePrivilege.DELETE))));
      return WriteCommands.made(
          OverwriteByExpression.class, true, target, Literal$.MODULE$.TrueLiteral(), made.query(),
          made.writeOptions());
    }
  }
}
