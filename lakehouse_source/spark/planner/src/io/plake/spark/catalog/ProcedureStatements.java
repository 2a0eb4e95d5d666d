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
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.antlr.v4.runtime.CharStreams;
import org.antlr.v4.runtime.Token;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer;
import org.apache.spark.sql.catalyst.parser.UpperCaseCharStream;
import org.apache.spark.sql.internal.SQLConf;
import scala.jdk.javaapi.CollectionConverters;

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
  private static final Pattern NUMBER = Pattern.compile("[0-9]{1,12}(?:\\.[0-9]{1,6})?");

  /** The columns of {@code DESCRIBE DETAIL}, by Delta's names. */
  private static final String DETAIL = "'plake' AS format, properties['comment'] AS description, location,"
      + " created_at AS createdAt,"
      + " last_modified AS lastModified, partition_columns AS partitionColumns,"
      + " clustering_columns AS clusteringColumns, num_files AS numFiles, size_bytes AS sizeInBytes,"
      + " properties, version, num_rows AS numRows";

  private static final BigDecimal SECONDS_OF_HOUR = new BigDecimal(3600);
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

  /** Versions of Spark differ in the methods of a parser: those that read a statement begin alike. */
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
      found = statement(new Words(text));
    } catch (ParseException e) { // of a name
      found = null;
    }
    return found == null ? text : found;
  }

  /** What a statement becomes; null: it is none of these. */
  private String statement(Words words) throws ParseException {
    if (words.take("VACUUM")) {
      return vacuum(words);
    } else if (words.take("OPTIMIZE")) {
      return optimize(words);
    } else if (words.take("DESCRIBE", "HISTORY") || words.take("DESC", "HISTORY")) {
      return history(words);
    } else if (words.take("DESCRIBE", "DETAIL") || words.take("DESC", "DETAIL")) {
      Subject table = subject(words);
      return table == null || !words.isDone() ? null
          : "SELECT " + DETAIL + " FROM " + table.metadata("detail");
    } else if (words.take("RESTORE")) {
      return restore(words);
    } else if (words.take("CONVERT", "TO", Relations.SOURCE)) {
      return convert(words);
    } else if (words.take("REORG", "TABLE")) {
      Subject table = subject(words);
      return table == null || !words.take("APPLY", "(", "PURGE", ")") || !words.isDone() ? null
          : table.call("compact", "rewrite_deleted => true");
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

  private String vacuum(Words words) throws ParseException {
    Subject table = subject(words);
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
    return table == null || !words.isDone() ? null : table.call("vacuum", retention, dryRun);
  }

  private String optimize(Words words) throws ParseException {
    Subject table = subject(words);
    String full = words.take("FULL") ? "full => true" : "";
    String where = "";
    if (words.take("WHERE")) {
      String condition = words.until("ZORDER");
      where = "where => " + literal(condition);
      if (condition.isEmpty()) {
        return null;
      }
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

  private String history(Words words) throws ParseException {
    Subject table = subject(words);
    String limit = "";
    if (words.take("LIMIT")) {
      String count = words.taken(INTEGER);
      if (count == null) {
        return null;
      }
      limit = " LIMIT " + count;
    }
    return table == null || !words.isDone() ? null
        : "SELECT * FROM " + table.metadata("history") + " ORDER BY version DESC" + limit;
  }

  private String restore(Words words) throws ParseException {
    words.take("TABLE");
    Subject table = subject(words);
    String to = null;
    if (words.take("TO", "VERSION", "AS", "OF")) {
      String version = words.taken(INTEGER);
      to = version == null ? null : "version => " + version + "L";
    } else if (words.take("TO", "TIMESTAMP", "AS", "OF")) {
      String moment = words.until();
      to = moment.isEmpty() ? null : "timestamp => CAST(" + moment + " AS TIMESTAMP)";
    }
    return table == null || to == null || !words.isDone() ? null : table.call("restore", to);
  }

  /** {@code CONVERT TO PLAKE parquet.`/folder` PARTITIONED BY (day DATE)}, or of {@code delta}. */
  private String convert(Words words) throws ParseException {
    List<String> parts = words.name(spark);
    String catalog = anyCatalog();
    if (parts == null || parts.size() != 2 || catalog == null
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
    return !words.isDone() ? null : call(catalog, "convert", "path => " + literal(parts.get(1)),
        "format => " + literal(parts.get(0).toLowerCase(Locale.ROOT)), partitioned);
  }

  /** {@code CREATE TABLE t SHALLOW CLONE s VERSION AS OF 3}, of two tables of one catalog. */
  private String clone(Words words) throws ParseException {
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

  private String alter(Words words) throws ParseException {
    Subject table = subject(words);
    if (table == null) {
      return null;
    }
    return words.take("ADD", "CONSTRAINT") ? constraint(table, words) : reference(table, words);
  }

  /**
   * {@code ADD CONSTRAINT x CHECK (a > 0)}, or a key. Spark would read the rows first, in its session's time
   * zone, name no row, and fail where its optimizer knows that no row breaks the constraint.
   */
  private String constraint(Subject table, Words words) throws ParseException {
    List<String> name = words.name(spark);
    String key = words.take("PRIMARY", "KEY") ? "PRIMARY KEY " : words.take("UNIQUE") ? "UNIQUE " : "";
    String condition = !key.isEmpty() || words.take("CHECK") ? words.inParentheses() : null;
    return name == null || name.size() != 1 || condition == null || !words.isDone() ? null
        : table.call("add_constraint", "name => " + literal(name.get(0)),
            "expression => " + literal(key.isEmpty() ? condition : key + "(" + condition + ")"));
  }

  /** Iceberg's {@code CREATE TAG x AS OF VERSION 3}, and the same of branches. */
  private String reference(Subject table, Words words) throws ParseException {
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

  private void throwIfOurs(Words words, String message) throws ParseException {
    Subject table = subject(words);
    if (table != null) {
      // A parser may throw no checked exception but its own.
      throw new UnsupportedOperationException(
          String.format(message, table.catalog, literal(table.argument())));
    }
  }

  /** Columns in parentheses, each as one text; null: something else. */
  private List<String> columns(Words words) throws ParseException {
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

  /** The table that comes next, of a catalog of plake; null: of another one. */
  private Subject subject(Words words) throws ParseException {
    List<String> parts = words.name(spark);
    if (parts == null) {
      return null;
    }
    String first = parts.get(0);
    if (parts.size() > 1 && PlakeCatalogs.isOne(first)) {
      return new Subject(first, parts.subList(1, parts.size()));
    }
    if (parts.size() == 2 && first.equalsIgnoreCase(Relations.SOURCE) && parts.get(1).contains("/")) {
      String catalog = anyCatalog();
      return catalog == null ? null : new Subject(catalog, parts.subList(1, 2));
    }
    String current = session.sessionState().catalogManager().currentCatalog().name();
    boolean isElsewhere = parts.size() > 1
        && session.sessionState().catalogManager().isCatalogRegistered(first);
    return PlakeCatalogs.isOne(current) && !isElsewhere ? new Subject(current, parts) : null;
  }

  /** A catalog whose procedures take paths; null: the session has none. */
  private static String anyCatalog() {
    List<String> names = PlakeCatalogs.names();
    return names.isEmpty() ? null
        : names.contains(Relations.SOURCE) ? Relations.SOURCE : names.get(0);
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

  /** The words of a statement, without comments, and how far they are read. */
  private static final class Words {
    private final String text;
    private final List<Token> tokens;
    private int at;

    Words(String text) {
      this.text = text;
      SqlBaseLexer lexer = new SqlBaseLexer(
          new UpperCaseCharStream(CharStreams.fromString(text)));
      lexer.removeErrorListeners();
      this.tokens = lexer.getAllTokens().stream()
          .filter(token -> token.getChannel() == Token.DEFAULT_CHANNEL)
          .collect(Collectors.toCollection(ArrayList::new));
      while (!tokens.isEmpty() && tokens.get(tokens.size() - 1).getText().equals(";")) {
        tokens.remove(tokens.size() - 1);
      }
    }

    boolean isDone() {
      return at == tokens.size();
    }

    private String word(int place) {
      return place < tokens.size() ? tokens.get(place).getText() : "";
    }

    /** Goes on where these words come next. */
    boolean take(String... expected) {
      for (int i = 0; i < expected.length; i++) {
        if (!word(at + i).equalsIgnoreCase(expected[i])) {
          return false;
        }
      }
      at += expected.length;
      return true;
    }

    boolean skip() {
      at++;
      return at <= tokens.size();
    }

    /** The next word, where it has this form. */
    String taken(Pattern form) {
      Matcher found = form.matcher(word(at));
      return found.matches() ? tokens.get(at++).getText() : null;
    }

    /** The parts of the name that comes next; null: no name. */
    List<String> name(ParserInterface spark) throws ParseException {
      int first = at;
      if (isDone() || !isNamed(word(at))) {
        return null;
      }
      at++;
      while (word(at).equals(".") && isNamed(word(at + 1))) {
        at += 2;
      }
      return CollectionConverters.asJava(spark.parseMultipartIdentifier(slice(first, at)));
    }

    private static boolean isNamed(String word) {
      int first = word.isEmpty() ? ' ' : word.codePointAt(0);
      return first == '`' || first == '_' || Character.isLetterOrDigit(first);
    }

    /** The text up to one of some words, or to the end. */
    String until(String... words) {
      Set<String> ends = Set.of(words);
      int first = at;
      while (!isDone() && !ends.contains(word(at).toUpperCase(Locale.ROOT))) {
        at++;
      }
      return first == at ? "" : slice(first, at);
    }

    /** The text between parentheses that come next; null: they do not, or it is empty. */
    String inParentheses() {
      int first = at + 1;
      int depth = 0;
      do {
        depth += word(at).equals("(") ? 1 : word(at).equals(")") ? -1 : 0;
        at++;
      } while (depth > 0 && !isDone());
      return depth == 0 && at > first + 1 ? slice(first, at - 1) : null;
    }

    /** The text of some tokens, which count code points. */
    private String slice(int first, int end) {
      return text.substring(text.offsetByCodePoints(0, tokens.get(first).getStartIndex()),
          text.offsetByCodePoints(0, tokens.get(end - 1).getStopIndex() + 1));
    }
  }
}
