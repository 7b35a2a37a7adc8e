import com.fasterxml.jackson.databind.*;
import java.sql.*;
import javax.sql.DataSource;
import org.springframework.http.*;
import org.springframework.web.bind.annotation.*;

/** The service with Spring MVC. Wants a DataSource; the method is not @Transactional, as Idempotent commits. */
@RestController
public class ChargesController {
    private final DataSource pool;
    private final ObjectMapper json;

    public ChargesController(DataSource pool, ObjectMapper json) { this.pool = pool; this.json = json; }

    @PostMapping("/charges")
    public ResponseEntity<String> charges(@RequestHeader(name = "Idempotency-Key", required = false) String key,
                                          @RequestBody String body) throws SQLException {
        Idempotent.Answer answer = Idempotent.once(pool, "POST /charges", key, body, db -> charge(db, body));
        return ResponseEntity.status(answer.status()).contentType(MediaType.APPLICATION_JSON).body(answer.json());
    }

    private Idempotent.Answer charge(Connection db, String body) throws SQLException {
        try (PreparedStatement insert = db.prepareStatement("INSERT INTO charge (account, amount) VALUES (?, ?) RETURNING id")) {
            JsonNode request = json.readTree(body);
            insert.setString(1, request.path("account").textValue());
            insert.setBigDecimal(2, request.path("amount").decimalValue());
            ResultSet made = insert.executeQuery();
            made.next();
            if (request.path("amount").asInt() > 1000) return new Idempotent.Answer(402, "{\"status\": 402, \"title\": \"declined\"}");
            return new Idempotent.Answer(201, "{\"status\": 201, \"id\": \"" + made.getLong(1) + "\"}");
        } catch (java.io.IOException error) {
            return new Idempotent.Answer(400, "{\"status\": 400, \"title\": \"not JSON\"}");
        }
    }

    @ExceptionHandler(SQLException.class)
    public ResponseEntity<String> refused(SQLException error) throws Exception {
        int status = Idempotent.statusOf(error);
        return ResponseEntity.status(status).contentType(MediaType.APPLICATION_JSON)
            .body(json.writeValueAsString(java.util.Map.of("status", status, "title", String.valueOf(error.getMessage()))));
    }
}
