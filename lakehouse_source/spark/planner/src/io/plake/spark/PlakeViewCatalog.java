package io.plake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.plake.spark.catalog.ChangesTable;
import io.plake.spark.catalog.PlakeChangelog;
import io.plake.spark.catalog.PlakeTable;
import io.plake.spark.catalog.ViewText;
import io.plake.spark.core.Channel;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Vocabulary;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NoSuchViewException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.ViewAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Relation;
import org.apache.spark.sql.connector.catalog.RelationCatalog;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableSummary;
import org.apache.spark.sql.connector.catalog.TableWritePrivilege;
import org.apache.spark.sql.connector.catalog.View;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * {@link PlakeCatalog} with views and changes of tables, from Spark 4.2 on: 4.1 has neither in
 * catalogs like this, and lacks classes that this one needs.
 *
 * <p>A view is a text that Spark made and reads. plake keeps it, and its name.
 */
public final class PlakeViewCatalog extends PlakeCatalog implements RelationCatalog {

  /** What commits of a table changed. */
  @Override
  public Changelog loadChangelog(
      Identifier table, ChangelogContext requested, CaseInsensitiveStringMap options) {
    return new PlakeChangelog(ChangesTable.of(
        channel(), Channel.about(null, table), PlakeChangelog.options(requested, options)));
  }

  /** A table or a view: tables are asked for far more often, and come first. */
  @Override
  public Relation loadRelation(Identifier name) throws NoSuchTableException {
    try {
      return newest(name, true);
    } catch (NoSuchTableException e) {
      View view = runnable(name);
      if (view == null) {
        throw e;
      }
      return view;
    }
  }

  /** Of the target of a write that is a view Spark would say that there is nothing of that name. */
  @Override
  public Table loadTable(Identifier table, Set<TableWritePrivilege> privileges)
      throws NoSuchTableException {
    try {
      return super.loadTable(table, privileges);
    } catch (NoSuchTableException e) {
      if (!privileges.isEmpty() && viewExists(table)) {
        throw Refusal.because(table + " is a view of the catalog " + name() + ", and a statement"
            + " changes tables. Name the table that the view reads.");
      }
      throw e;
    }
  }

  @Override
  public View loadView(Identifier name) throws NoSuchViewException {
    View view = runnable(name);
    if (view == null) {
      throw new NoSuchViewException(name);
    }
    return view;
  }

  @Override
  public boolean viewExists(Identifier name) {
    return find(name) != null;
  }

  @Override
  public Identifier[] listViews(String[] namespace) throws NoSuchNamespaceException {
    return named(Vocabulary.RequestKind.LIST_VIEWS, namespace);
  }

  /** In one request: Spark would load each table to learn of what type it is. */
  @Override
  public TableSummary[] listRelationSummaries(String[] namespace) {
    Channel.Response found =
        channel().read(about(Vocabulary.RequestKind.LIST_RELATIONS, namespace));
    List<TableSummary> all = new ArrayList<>();
    for (String table : found.texts(Vocabulary.ResponseKey.NAMES)) {
      all.add(TableSummary.of(Identifier.of(namespace, table), TableSummary.FOREIGN_TABLE_TYPE));
    }
    for (String view : found.texts(Vocabulary.ResponseKey.VIEWS)) {
      all.add(TableSummary.of(Identifier.of(namespace, view), TableSummary.VIEW_TABLE_TYPE));
    }
    return all.toArray(new TableSummary[0]);
  }

  @Override
  public View createView(Identifier name, View view)
      throws ViewAlreadyExistsException, NoSuchNamespaceException {
    return put(name, view, Vocabulary.Stage.CREATE);
  }

  @Override
  public View createOrReplaceView(Identifier name, View view)
      throws ViewAlreadyExistsException, NoSuchNamespaceException {
    return put(name, view, Vocabulary.Stage.EITHER);
  }

  @Override
  public View replaceView(Identifier name, View view) throws NoSuchViewException {
    return put(name, view, Vocabulary.Stage.REPLACE);
  }

  @Override
  public boolean dropView(Identifier name) {
    return channel().change(Channel.about(Vocabulary.RequestKind.DROP_VIEW, name))
        .body().get(Vocabulary.ResponseKey.EXISTS).asBoolean();
  }

  @Override
  public void renameView(Identifier name, Identifier renamed) {
    ObjectNode request = Channel.about(Vocabulary.RequestKind.RENAME_VIEW, name);
    Channel.add(request.putArray(Vocabulary.RequestKey.RENAMED), renamed);
    channel().change(request);
  }

  private View put(Identifier name, View view, String kind) {
    new ViewText(name(), String.valueOf(name)).check(view.queryText());
    ObjectNode request = Channel.about(Vocabulary.RequestKind.PUT_VIEW, name)
        .put(Vocabulary.RequestKey.STAGE, kind);
    ObjectNode body = request.putObject(Vocabulary.RequestKey.VIEW)
        .put(Vocabulary.View.SQL, view.queryText())
        .put(Vocabulary.View.COLUMNS, view.schema().json())
        .put(Vocabulary.View.CATALOG, view.currentCatalog())
        .put(Vocabulary.View.SCHEMA_MODE, view.schemaMode());
    put(body.putArray(Vocabulary.View.NAMESPACE), view.currentNamespace());
    put(body.putArray(Vocabulary.View.QUERY_COLUMNS), view.queryColumnNames());
    put(body.putObject(Vocabulary.View.CONFIGS), view.sqlConfigs());
    put(body.putObject(Vocabulary.View.PROPERTIES), view.properties());
    try {
      channel().change(request);
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) { // undeclared: Spark expects another one where a table has the name
      throw Refusal.undeclared(e instanceof TableAlreadyExistsException
          ? new ViewAlreadyExistsException(name) : e);
    }
    return view;
  }

  private static void put(ArrayNode list, String[] texts) {
    for (String text : texts == null ? new String[0] : texts) {
      list.add(text);
    }
  }

  private static void put(ObjectNode object, Map<String, String> texts) {
    if (texts != null) {
      texts.forEach(object::put);
    }
  }

  /** A view, to be shown or dropped; {@link #runnable} is one that Spark may run. */
  private View find(Identifier name) {
    JsonNode response = ask(name);
    return response.has(Vocabulary.ResponseKey.VIEW)
        ? view(response.get(Vocabulary.ResponseKey.VIEW)) : null;
  }

  private JsonNode ask(Identifier name) {
    return channel().read(Channel.about(Vocabulary.RequestKind.LOAD_VIEW, name)).body();
  }

  /** A view whose text was checked, unless Spark only shows it. */
  private View runnable(Identifier name) {
    JsonNode response = ask(name);
    if (!response.has(Vocabulary.ResponseKey.VIEW)) {
      return null;
    }
    View view = view(response.get(Vocabulary.ResponseKey.VIEW));
    if (!ViewText.isShown()) {
      ViewText text = new ViewText(name(), String.valueOf(name));
      if (response.get(Vocabulary.ResponseKey.IS_FOREIGN).asBoolean()) {
        text.checkOwner();
      }
      text.check(view.queryText());
    }
    return view;
  }

  private static View view(JsonNode body) {
    View.Builder view = new View.Builder()
        .withQueryText(body.get(Vocabulary.View.SQL).asText())
        .withCurrentNamespace(texts(body.get(Vocabulary.View.NAMESPACE)))
        .withQueryColumnNames(texts(body.get(Vocabulary.View.QUERY_COLUMNS)))
        .withSqlConfigs(ViewText.settings(PlakeTable.texts(body.get(Vocabulary.View.CONFIGS))));
    if (!body.get(Vocabulary.View.CATALOG).isNull()) {
      view.withCurrentCatalog(body.get(Vocabulary.View.CATALOG).asText());
    }
    if (!body.get(Vocabulary.View.SCHEMA_MODE).isNull()) {
      view.withSchemaMode(body.get(Vocabulary.View.SCHEMA_MODE).asText());
    }
    view.withSchema((StructType) DataType.fromJson(body.get(Vocabulary.View.COLUMNS).asText()));
    view.withProperties(PlakeTable.texts(body.get(Vocabulary.View.PROPERTIES)));
    return view.build();
  }

  private static String[] texts(JsonNode list) {
    List<String> found = new ArrayList<>();
    list.forEach(text -> found.add(text.asText()));
    return found.toArray(new String[0]);
  }

  @Override
  public Set<String> changelogStateOptionKeys() {
    return PlakeChangelog.stateOptions();
  }
}
