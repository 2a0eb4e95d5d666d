package io.plake.spark.statements;

import static scala.jdk.javaapi.CollectionConverters.asJava;
import static scala.jdk.javaapi.CollectionConverters.asScala;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import io.plake.spark.catalog.PlakeTable;
import io.plake.spark.catalog.TableToCreate;
import io.plake.spark.core.Channel;
import io.plake.spark.core.Envelope;
import io.plake.spark.core.Feature;
import io.plake.spark.core.PlakeSource;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.SealedOptions;
import io.plake.spark.core.Vocabulary;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Tells a write that replaces rows which versions of plake's datasets its query reads.
 *
 * <p>{@code INSERT OVERWRITE t SELECT … FROM t} would otherwise delete what others commit while it
 * runs: an overwrite replaces all rows that are there when it commits, and its query has not seen
 * these. plake's writer looks whether one of the datasets is its own, and then refuses to commit
 * after such a commit. A version that the user named does not count: to go back to it may be the
 * aim.
 */
public final class OverwriteReads extends Rule<LogicalPlan> {

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (Channel.isInTransaction()) {
      plan.transformUp(new Rewrite<>(OverwriteReads::checked));
    }
    if (!Relations.isOn()) {
      return plan;
    }
    try {
      return plan.transformUp(new Rewrite<>(OverwriteReads::withReads));
    } catch (LinkageError e) {
      Feature.STATEMENTS.failed(e);
      return plan;
    }
  }

  /**
   * Refuses, in a transaction of the session, a frame that Spark's own class made: that class tells
   * plake nothing of the session, and the frame would not show what the transaction wrote.
   */
  private static LogicalPlan checked(LogicalPlan node) {
    try {
      if (node instanceof DataSourceV2Relation relation && Relations.isFrame(relation.table())
          && !RowStatements.namesVersion(relation.options())
          && !relation.options().containsKey(Vocabulary.Changes.READ)
          && !(Relations.sourceOf((PythonTable) relation.table()) instanceof PlakeSource)) {
        throw Refusal.because("[PLAKE_INVALID_OPTION] option 'transaction': load(path) does not see"
            + " it, because the jar of plake is not in spark.jars: read spark.table(\"plake.`"
            + relation.options().get(Vocabulary.Place.PATH) + "`\").");
      }
      return node;
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  private static LogicalPlan withReads(LogicalPlan node) {
    if (!(node instanceof V2WriteCommand write) || !replaces(write)) {
      return node;
    }
    ArrayNode reads = Envelope.object().putArray(Vocabulary.Message.READS);
    collect(write.query(), catalogOf((DataSourceV2Relation) write.table()), reads);
    return reads.isEmpty() ? node : with(node, Vocabulary.Message.READS, reads);
  }

  private static boolean replaces(V2WriteCommand write) {
    if (!(write.table() instanceof DataSourceV2Relation target) || !write.query().resolved()) {
      return false;
    }
    boolean creates = target.table() instanceof TableToCreate;
    boolean replaces = write instanceof OverwriteByExpression
        || write instanceof OverwritePartitionsDynamic || write instanceof AppendData && creates;
    return replaces && (creates || Relations.isOurs(target));
  }

  /**
   * The write with one option more.
   *
   * <p>Options are at the command, at its table, or at both. Spark demands that they are equal
   * where both have some.
   */
  @SuppressWarnings("unchecked")
  private static LogicalPlan with(LogicalPlan write, String key, JsonNode value) {
    DataSourceV2Relation target = (DataSourceV2Relation) ((V2WriteCommand) write).table();
    boolean ofTable = !target.options().isEmpty();
    return Rewrite.copy(write, part -> {
      if (part == target && ofTable) {
        Map<String, String> all = new HashMap<>(target.options().asCaseSensitiveMap());
        SealedOptions.put(all, key, value);
        return Relations.copy(
            target, (PythonTable) target.table(), new CaseInsensitiveStringMap(all));
      }
      if (part instanceof scala.collection.immutable.Map<?, ?> options
          && !(ofTable && options.isEmpty())) {
        Map<String, String> all = new HashMap<>(
            asJava((scala.collection.immutable.Map<String, String>) options));
        SealedOptions.put(all, key, value);
        return scala.collection.immutable.Map.from(asScala(all));
      }
      return part;
    });
  }

  /** The URL of plake's catalog, concealed or as the user gave it; null where it is not told. */
  private static String catalogOf(DataSourceV2Relation relation) {
    CaseInsensitiveStringMap options = relation.options();
    if (relation.table() instanceof PlakeTable table) {
      options = table.with(options);
    } else if (relation.table() instanceof TableToCreate table) {
      options = table.options();
    }
    return options.get(Vocabulary.Place.CATALOG);
  }

  /**
   * The datasets that a query reads at the version that was the newest, those of subqueries too.
   */
  private static void collect(LogicalPlan plan, String catalog, ArrayNode reads) {
    if (Relations.isOurs(plan)) {
      add((DataSourceV2Relation) plan, catalog, reads);
    }
    Stream.of(plan.children(), plan.subqueries()).forEach(plans ->
        asJava(plans).forEach(below -> collect(below, catalog, reads)));
  }

  private static void add(DataSourceV2Relation relation, String catalog, ArrayNode reads) {
    String own = catalogOf(relation);
    if (own != null && catalog != null && !own.equals(catalog)) {
      return; // versions of another catalog
    }
    CaseInsensitiveStringMap options = relation.options();
    long version;
    if (relation.table() instanceof PlakeTable table) {
      if (table.isPinned || table.isMetadata) {
        return;
      }
      options = table.with(options);
      version = table.version;
    } else {
      PythonTable table = (PythonTable) relation.table();
      if (RowStatements.namesVersion(options)) {
        return;
      }
      try {
        version = RowStatements.versionOf(Relations.sourceOf(table), table, options);
      } catch (IllegalStateException e) {
        return; // a frame without a dataset: to read it says so
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
    reads.addArray().add(options.get(Vocabulary.Place.PATH)).add(version);
  }
}
