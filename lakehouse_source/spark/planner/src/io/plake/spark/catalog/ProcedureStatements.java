package io.plake.spark.catalog;

import io.plake.spark.core.PlakeCatalogs;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Vocabulary;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.internal.SQLConf;

/**
 * Statements that users of Delta and Iceberg type, as what plake has for them: {@code VACUUM t} is
 * {@code CALL plake.system.vacuum(table => 't')}.
 *
 * <p>The statement's words are those of Spark's own lexer. A text that is no such statement, or is
 * about a table of another catalog, reaches Spark's parser as it is. So does one with an error: the
 * message and its place are Spark's.
 */
public final class ProcedureStatements implements InvocationHandler {
  /** With which words such a statement begins: other texts are not looked at. */
  private static final Pattern FIRST = Pattern.compile(
      "(?:\\s|--[^\\n]*\\n|/\\*.*?\\*/)*+(?:VACUUM|OPTIMIZE|DESC|DESCRIBE|RESTORE|CONVERT|REORG|ALTER"
          + "|MSCK|GENERATE|CREATE(?=\\b.*\\bCLONE\\b))\\b.*", Pattern.CASE_INSENSITIVE | Pattern.DOTALL);

  private static final Pattern PLAIN = Pattern.compile("[A-Za-z_][A-Za-z0-9_]*");
  private static final Pattern INTEGER = Pattern.compile("[0-9]{1,18}");
  private static final Pattern VERSION = Pattern.compile("[0-9]{1,18}|'[0-9]{1,18}'");
  private static final Pattern QUOTED = Pattern.compile("'.*'|\".*\"", Pattern.DOTALL);
  private static final Pattern NUMBER = Pattern.compile("[0-9]{1,12}(?:\\.[0-9]{1,6})?");

  private static final BigDecimal SECONDS_OF_HOUR = new BigDecimal(3600);
  /** By which users of Delta allow a short retention. */
  private static final String CHECKS_RETENTION =
      "spark.databricks.delta.retentionDurationCheck.enabled";
  private static final Set<String> FORMATS = Set.of("parquet", "delta");
  private static final Set<String> QUOTES = Set.of("'", "\"");

  private final SparkSession session;
  private final ParserInterface spark;

  private ProcedureStatements(SparkSession session, ParserInterface spark) {
    this.session = session;
    this.spark = spark;
  }

  /** A parser that knows these statements, and hands all others to the session's own. */
  public static ParserInterface before(SparkSession session, ParserInterface spark) {
    return (ParserInterface) Proxy.newProxyInstance(ParserInterface.class.getClassLoader(),
        new Class<?>[] {ParserInterface.class}, new ProcedureStatements(session, spark));
  }

  /**
   * Versions of Spark differ in the methods of a parser: those that read a statement begin alike.
   */
  @Override
  public Object invoke(Object proxy, Method method, Object[] given) throws Throwable {
    Object[] handed = given;
    if (method.getName().startsWith("parsePlan") && given[0] instanceof String text
        && FIRST.matcher(text).matches() && Relations.isOn()) {
      handed = given.clone();
      handed[0] = translated(text);
    }
    try {
      return method.invoke(spark, handed);
    } catch (InvocationTargetException e) {
      throw e.getCause();
    }
  }

  private String translated(String text) {
    String found;
    try {
      found = statement(new StatementWords(text));
    } catch (ParseException e) { // of a name
      found = null;
    }
    return found == null ? text : found;
  }

  /** What a statement becomes; null: it is none of these. */
  private String statement(StatementWords words) throws ParseException {
    if (words.take("VACUUM")) {
      return vacuum(words);
    } else if (words.take("OPTIMIZE")) {
      return optimize(words);
    } else if (words.take("DESCRIBE", "HISTORY") || words.take("DESC", "HISTORY")) {
      return history(words);
    } else if (words.take("DESCRIBE", "DETAIL") || words.take("DESC", "DETAIL")) {
      Subject table = subjectOrPath(words);
      return table == null || !words.isDone() ? null
          : "SELECT " + DeltaAnswers.DETAIL + " FROM " + table.metadata("detail");
    } else if (words.take("RESTORE")) {
      return restore(words);
    } else if (words.take("CONVERT", "TO", Relations.SOURCE)) {
      return convert(words);
    } else if (words.take("REORG", "TABLE")) {
      return purge(words);
    } else if (words.take("CREATE")) {
      return clone(words);
    } else if (words.take("ALTER", "TABLE")) {
      return alter(words);
    } else if (words.take("MSCK", "REPAIR", "TABLE")) {
      throwIfOurs(words, "MSCK REPAIR TABLE looks for folders of partitions. A table of plake has the"
          + " files that its catalog records: CALL %s.system.add_files(table => %s, path => '…')");
    } else if (words.take("GENERATE") && words.skip() && words.take("FOR", "TABLE")) {
      throwIfOurs(words, "GENERATE writes a manifest for readers of Delta, which plake has not. Other"
          + " engines read the table by its catalog, see docs/engines.md: CALL %s.system.verify(%s)"
          + " tells whether its files are there");
    }
    return null;
  }

  private String vacuum(StatementWords words) throws ParseException {
    Subject table = subjectOrPath(words);
    if (!words.take("FULL")) {
      words.take("LITE"); // there is one way to look for files
    }
    String retention = "";
    if (words.take("RETAIN")) {
      String hours = words.taken(NUMBER);
      if (hours == null || !words.take("HOURS")) {
        return null;
      }
      retention = "retention_seconds => "
          + new BigDecimal(hours).multiply(SECONDS_OF_HOUR).toPlainString() + "D";
    }
    String dryRun = words.take("DRY", "RUN") ? "dry_run => true" : "";
    String isShort = SQLConf.get().getConfString(CHECKS_RETENTION, "true").equalsIgnoreCase("false")
        ? "allow_short_retention => true" : "";
    return table == null || !words.isDone() ? null
        : table.call("vacuum", retention, dryRun, isShort);
  }

  private String optimize(StatementWords words) throws ParseException {
    Subject table = subjectOrPath(words);
    String full = words.take("FULL") ? "full => true" : "";
    String where = where(words, "ZORDER");
    if (where == null) {
      return null;
    }
    String order = "";
    if (words.take("ZORDER", "BY")) {
      List<String> columns = columns(words);
      if (columns == null) {
        return null;
      }
      order = "zorder_by => array("
          + columns.stream().map(ProcedureStatements::literal).collect(Collectors.joining(", "))
          + ")";
    }
    return table == null || !words.isDone() ? null : table.call("optimize", full, where, order);
  }

  private String purge(StatementWords words) throws ParseException {
    Subject table = subject(words);
    String where = where(words, "APPLY");
    return table == null || where == null || !words.take("APPLY", "(", "PURGE", ")")
        || !words.isDone() ? null : table.call("compact", "rewrite_deleted => true", where);
  }

  /** An argument of the condition that comes next, up to a word; null: it is empty. */
  private String where(StatementWords words, String end) {
    if (!words.take("WHERE")) {
      return "";
    }
    String condition = words.until(end);
    return condition.isEmpty() ? null : "where => " + literal(condition);
  }

  private String history(StatementWords words) throws ParseException {
    Subject table = subjectOrPath(words);
    String limit = "";
    if (words.take("LIMIT")) {
      String count = words.taken(INTEGER);
      if (count == null) {
        return null;
      }
      limit = " LIMIT " + count;
    }
    return table == null || !words.isDone() ? null
        : "SELECT " + DeltaAnswers.HISTORY + " FROM " + table.metadata("history")
            + " ORDER BY version DESC" + limit;
  }

  private String restore(StatementWords words) throws ParseException {
    words.take("TABLE");
    Subject table = subject(words);
    words.take("TO");
    String to = null;
    if (words.take("VERSION", "AS", "OF")) {
      String version = words.taken(VERSION);
      to = version == null ? null : "version => " + version.replace("'", "") + "L";
    } else if (words.take("TIMESTAMP", "AS", "OF")) {
      String moment = words.until();
      to = moment.isEmpty() ? null : "timestamp => CAST(" + moment + " AS TIMESTAMP)";
    }
    return table == null || to == null || !words.isDone() ? null : table.call("restore", to);
  }

  /** {@code CONVERT TO PLAKE parquet.`/folder` PARTITIONED BY (day DATE)}, or of {@code delta}. */
  private String convert(StatementWords words) throws ParseException {
    List<String> parts = words.name(spark);
    if (parts == null || parts.size() != 2
        || !FORMATS.contains(parts.get(0).toLowerCase(Locale.ROOT))) {
      return null;
    }
    words.take("NO", "STATISTICS"); // plake reads the footers anyway
    String partitioned = "";
    if (words.take("PARTITIONED", "BY", "(")) {
      String columns = words.until();
      if (!columns.endsWith(")")) {
        return null;
      }
      partitioned = "partitioned_by => array("
          + literal(columns.substring(0, columns.length() - 1)) + ")";
    }
    return !words.isDone() ? null : call(PlakeCatalogs.with(Map.of()), "convert", "path => " + literal(parts.get(1)),
        "format => " + literal(parts.get(0).toLowerCase(Locale.ROOT)), partitioned);
  }

  /** {@code CREATE TABLE t SHALLOW CLONE s VERSION AS OF 3}, of two tables of one catalog. */
  private String clone(StatementWords words) throws ParseException {
    String replace = words.take("OR", "REPLACE") ? "replace => true" : "";
    if (!words.take("TABLE")) {
      return null;
    }
    String existOk = words.take("IF", "NOT", "EXISTS") ? "exist_ok => true" : "";
    Subject made = subject(words);
    String deep = words.take("DEEP", "CLONE") ? "deep => true"
        : words.take("SHALLOW", "CLONE") ? "" : null;
    Subject table = made == null || deep == null ? null : subject(words);
    String at = "";
    if (words.take("VERSION", "AS", "OF")) {
      String version = words.taken(INTEGER);
      at = version == null ? null : "version => " + version + "L";
    } else if (words.take("TIMESTAMP", "AS", "OF")) {
      at = "timestamp => CAST(" + words.until("LOCATION") + " AS TIMESTAMP)";
    }
    String place = words.take("LOCATION") ? "location => " + words.until() : "";
    if (table == null || at == null || !words.isDone()) {
      return null;
    }
    Subject named = made.isPath() ? table : made;
    if (!table.isPath() && !table.catalog.equals(named.catalog)) {
      throw new UnsupportedOperationException("A clone is in the catalog of its source: "
          + named.catalog + " is not " + table.catalog);
    }
    return call(named.catalog, "clone", "table => " + literal(table.argument()),
        "to => " + literal(made.argument()), at, deep, replace, existOk, place);
  }

  private String alter(StatementWords words) throws ParseException {
    List<String> name = words.name(spark);
    boolean isConstraint = words.take("ADD", "CONSTRAINT");
    if (!isConstraint && !words.isNext("CREATE") && !words.isNext("DROP")) {
      return null; // the metastore is not asked for tables of Spark's other statements
    }
    Subject table = subject(name);
    if (table == null) {
      return null;
    }
    return isConstraint ? constraint(table, words) : reference(table, words);
  }

  /**
   * {@code ADD CONSTRAINT x CHECK (a > 0)}, or a key. Spark would read the rows first, in its
   * session's time zone, name no row, and fail where its optimizer knows that no row breaks the
   * constraint.
   */
  private String constraint(Subject table, StatementWords words) throws ParseException {
    List<String> name = words.name(spark);
    String key = words.take("PRIMARY", "KEY") ? "PRIMARY KEY " : words.take("UNIQUE") ? "UNIQUE " : "";
    String condition = !key.isEmpty() || words.take("CHECK") ? words.inParentheses() : null;
    return name == null || name.size() != 1 || condition == null || !words.isDone() ? null
        : table.call("add_constraint", "name => " + literal(name.get(0)),
            "expression => " + literal(key.isEmpty() ? condition : key + "(" + condition + ")"));
  }

  /** Iceberg's {@code CREATE TAG x AS OF VERSION 3}, and the same of branches. */
  private String reference(Subject table, StatementWords words) throws ParseException {
    String verb = words.take("CREATE") ? "create_" : words.take("DROP") ? "drop_" : null;
    String kind = words.take("TAG") ? "tag" : words.take("BRANCH") ? "branch" : null;
    if (verb == null || kind == null) {
      return null;
    }
    List<String> name = words.name(spark);
    String version = "";
    if (verb.equals("create_") && words.take("AS", "OF", "VERSION")) {
      String number = words.taken(INTEGER);
      if (number == null) {
        return null;
      }
      version = "version => " + number + "L";
    }
    return name == null || name.size() != 1 || !words.isDone() ? null
        : table.call(verb + kind, "name => " + literal(name.get(0)), version);
  }

  private void throwIfOurs(StatementWords words, String message) throws ParseException {
    Subject table = subject(words);
    if (table != null) {
      // A parser may throw no checked exception but its own.
      throw new UnsupportedOperationException(
          String.format(message, table.catalog, literal(table.argument())));
    }
  }

  /** Columns in parentheses, each as one text; null: something else. */
  private List<String> columns(StatementWords words) throws ParseException {
    boolean isInside = words.take("(");
    List<String> found = new ArrayList<>();
    do {
      List<String> name = words.name(spark);
      if (name == null) {
        return null;
      }
      found.add(String.join(".", name));
    } while (words.take(","));
    return !isInside || words.take(")") ? found : null;
  }

  /**
   * As {@link #subject}, or a path in quotes; null too where another parser knows the statement.
   */
  private Subject subjectOrPath(StatementWords words) throws ParseException {
    String quoted = words.taken(QUOTED);
    if (quoted == null) {
      return subject(words);
    }
    String path = String.valueOf(spark.parseExpression(quoted).eval(null));
    return !path.contains("/") || isKnown(words.text) ? null
        : new Subject(PlakeCatalogs.with(Map.of()), List.of(path));
  }

  private boolean isKnown(String text) {
    try {
      spark.parsePlan(text);
      return true;
    } catch (ParseException e) {
      return false;
    }
  }

  /** The table that comes next, of a catalog of plake; null: of another one. */
  private Subject subject(StatementWords words) throws ParseException {
    return subject(words.name(spark));
  }

  private Subject subject(List<String> parts) {
    if (parts == null) {
      return null;
    }
    String found = PlakeCatalogs.catalogOf(session, parts);
    boolean isNamed = parts.size() > 1 && found.equals(parts.get(0));
    if (PlakeCatalogs.isOne(found) && isNamed) {
      return new Subject(found, parts.subList(1, parts.size()));
    }
    if (parts.size() == 2 && parts.get(0).equalsIgnoreCase(Relations.SOURCE)
        && parts.get(1).contains("/")) {
      return new Subject(PlakeCatalogs.with(Map.of()), parts.subList(1, 2));
    }
    if (found.equals(PlakeCatalogs.OF_SESSION)) {
      return ofSession(isNamed ? parts.subList(1, parts.size()) : parts);
    }
    return PlakeCatalogs.isOne(found) ? new Subject(found, parts) : null;
  }

  /** A table of plake in {@code spark_catalog}, which has no procedures, by its path. */
  private Subject ofSession(List<String> parts) {
    CatalogTable entry = SessionEntry.find(session, parts);
    return entry == null ? null : new Subject(
        PlakeCatalogs.with(SessionEntry.optionsOf(entry)), List.of(SessionEntry.pathOf(entry)));
  }

  private static String call(String catalog, String procedure, String... arguments) {
    return "CALL " + Refusal.quoted(catalog) + "." + Vocabulary.Namespace.SYSTEM + "." + procedure
        + List.of(arguments).stream().filter(one -> !one.isEmpty())
            .collect(Collectors.joining(", ", "(", ")"));
  }

  /** A text as a literal of SQL, as this session reads literals. */
  private static String literal(String text) {
    if (!SQLConf.get().escapedStringLiterals()) {
      return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'";
    }
    for (String quote : QUOTES) {
      if (!text.contains(quote)) {
        return quote + text + quote;
      }
    }
    throw Refusal.because("A text with both kinds of quotes cannot be handed on while"
        + " spark.sql.parser.escapedStringLiterals is set: " + text);
  }

  /** A table of plake, in a catalog of this session. */
  private final class Subject {
    private final String catalog;
    private final List<String> parts;

    Subject(String catalog, List<String> parts) {
      this.catalog = catalog;
      this.parts = parts;
    }

    /** As an argument of a procedure. */
    String argument() {
      return parts.size() == 1 && isPath() && !parts.get(0).contains("`") ? parts.get(0)
          : joined(parts);
    }

    private boolean isPath() {
      return parts.get(0).contains("/");
    }

    String call(String procedure, String... more) {
      List<String> arguments = new ArrayList<>(List.of(more));
      arguments.add(0, "table => " + literal(argument()));
      return ProcedureStatements.call(catalog, procedure, arguments.toArray(String[]::new));
    }

    /** One of the tables that tell about it, such as its history. */
    String metadata(String name) {
      String namespace = parts.size() == 1 && !isPath() ? session.catalog().currentDatabase() + "."
          : "";
      return Refusal.quoted(catalog) + "." + namespace + joined(parts) + "." + name;
    }

    private String joined(List<String> names) {
      return names.stream().map(name -> PLAIN.matcher(name).matches() ? name : Refusal.quoted(name))
          .collect(Collectors.joining("."));
    }
  }
}
