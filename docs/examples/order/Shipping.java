// The shipping service: does the steps of the queue "shipping", in a database of its own.
// Wants SHOP_URL and DEPOT_URL, such as jdbc:postgresql://localhost/shop?user=shipping
import java.sql.*;

public class Shipping {
    // A step may come twice, and its compensation before a late act. One row for both makes each take effect once, and
    // refuses an act whose compensation was here.
    static String ship(Connection shop, Stacksaga.Item step) throws SQLException {
        String key = step.get("idempotency_key").replaceFirst(":(act|compensate)", "");
        String address = addressOf(shop, step.get("input"));
        if (step.get("direction").equals("compensate")) {
            update("INSERT INTO parcel VALUES (?, ?, true) ON CONFLICT (key) DO UPDATE SET recalled = true", key, address);
            return "{\"recalled\": true}";
        }
        if (address.equals("nowhere")) throw new SQLException("nobody lives at \"nowhere\"", "SG424");
        String insert = "INSERT INTO parcel VALUES (?, ?, false) ON CONFLICT (key) DO UPDATE SET recalled = false";
        if (update(insert + " WHERE NOT parcel.recalled", key, address) == 0)
            throw new SQLException("recalled before", "SG424");
        return "{\"shipped\": true}";
    }

    static int update(String sql, String... arguments) throws SQLException {
        try (Connection depot = DriverManager.getConnection(System.getenv("DEPOT_URL"));
             PreparedStatement statement = depot.prepareStatement(sql)) {
            for (int i = 0; i < arguments.length; i++) statement.setString(i + 1, arguments[i]);
            return statement.executeUpdate();
        }
    }

    static String addressOf(Connection shop, String input) throws SQLException {   // the database reads JSON
        try (PreparedStatement query = shop.prepareStatement("SELECT ?::jsonb->>'address'")) {
            query.setString(1, input);
            ResultSet row = query.executeQuery();
            row.next();
            return row.getString(1);
        }
    }

    public static void main(String[] arguments) throws Exception {
        long lease = Long.parseLong(System.getenv().getOrDefault("LEASE", "30"));
        new Stacksaga(System.getenv("SHOP_URL"), lease).work("shipping", Shipping::ship);
    }
}
