import java.sql.*;
import java.util.regex.*;
import javax.sql.DataSource;

/** Makes a request take effect once per Idempotency-Key. The handler works in the transaction of its marker. */
public class Idempotent {
    public record Answer(int status, String json) {}
    public interface Handler { Answer handle(Connection db) throws SQLException; }

    private static final Pattern KEY = Pattern.compile("\"([^\"\\\\]+)\"");
    private static final String BEGIN = "SELECT outcome, response->>'status', response->>'json', lease FROM stacksaga.idempotency_begin(?, ?, ?::jsonb)";
    private static final String FINISH = "SELECT stacksaga.idempotency_finish(?, ?, ?, jsonb_build_object('status', ?, 'json', ?))";

    /** The answer of the first request with this key. An error that the handler throws leaves the key free. */
    public static Answer once(DataSource pool, String scope, String header, String body, Handler handler) throws SQLException {
        Matcher quoted = KEY.matcher(header == null ? "" : header);
        String key = quoted.matches() ? quoted.group(1) : null; // without a key, begin raises SG400
        try (Connection db = pool.getConnection()) {
            db.setAutoCommit(false);
            try {
                Answer answer = inTransaction(db, scope, key, body, handler);
                db.commit();
                return answer;
            } catch (SQLException | RuntimeException error) {
                db.rollback();
                throw error;
            }
        }
    }

    private static Answer inTransaction(Connection db, String scope, String key, String body, Handler handler) throws SQLException {
        try (PreparedStatement begin = db.prepareStatement(BEGIN); PreparedStatement finish = db.prepareStatement(FINISH)) {
            begin.setString(1, scope); begin.setString(2, key); begin.setString(3, body);
            ResultSet known = begin.executeQuery();
            known.next();
            if (known.getString(1).equals("replay")) return new Answer(known.getInt(2), known.getString(3));
            Savepoint effects = db.setSavepoint();
            Answer answer = handler.handle(db);
            if (answer.status() >= 400) db.rollback(effects);
            finish.setString(1, scope); finish.setString(2, key); finish.setLong(3, known.getLong(4));
            finish.setInt(4, answer.status()); finish.setString(5, answer.json());
            finish.execute();
            return answer;
        }
    }

    /** The status of a refusal: the last three characters of its SQLSTATE. */
    public static int statusOf(SQLException error) {
        String state = error.getSQLState() == null ? "" : error.getSQLState();
        return state.matches("S[GR]\\d{3}") ? Integer.parseInt(state.substring(2)) : state.startsWith("22") ? 400 : 500;
    }
}
