// `Example work` does the steps of the queue "payments", `Example consume` books messages in a ledger.
// Wants JDBC_URL, such as jdbc:postgresql://localhost/shop
import java.sql.*;

public class Example {
    static String charge(Connection db, Stacksaga.Item step) throws SQLException {
        try (PreparedStatement query = db.prepareStatement("SELECT charge(?, ?, ?)")) {
            query.setString(1, step.get("idempotency_key"));
            query.setString(2, step.get("direction"));
            query.setString(3, step.get("input"));
            ResultSet row = query.executeQuery();
            row.next();
            return row.getString(1);
        }
    }

    static String book(Connection db, Stacksaga.Item message) throws SQLException {
        String insert = "INSERT INTO ledger (message_id, key, payload) VALUES (?, ?, ?)";
        try (PreparedStatement query = db.prepareStatement(insert)) {
            query.setString(1, message.get("message_id"));
            query.setString(2, message.get("key"));
            query.setString(3, message.get("payload"));
            query.execute();
            return null;
        }
    }

    public static void main(String[] arguments) throws Exception {
        String lease = System.getenv().getOrDefault("LEASE", "30");
        Stacksaga client = new Stacksaga(System.getenv("JDBC_URL"), Long.parseLong(lease));
        if (arguments[0].equals("work")) client.work("payments", Example::charge);
        else client.consume("ledger", Example::book);
    }
}
