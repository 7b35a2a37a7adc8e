import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.sql.SQLException;
import java.util.concurrent.Executors;
import org.postgresql.ds.PGSimpleDataSource;
import org.springframework.http.ResponseEntity;

/** Calls docs/examples/idempotency-key/ChargesController.java as Spring MVC would. Wants PORT and JDBC_URL. */
public class ChargesServer {
    public static void main(String[] arguments) throws Exception {
        PGSimpleDataSource pool = new PGSimpleDataSource();
        pool.setUrl(System.getenv("JDBC_URL"));
        ChargesController controller = new ChargesController(pool, new ObjectMapper());
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(System.getenv("PORT"))), 128);
        server.setExecutor(Executors.newFixedThreadPool(16));
        server.createContext("/charges", exchange -> {
            ResponseEntity<String> answer = null;
            try {
                String body = new String(exchange.getRequestBody().readAllBytes(), "UTF-8");
                try {
                    answer = controller.charges(exchange.getRequestHeaders().getFirst("Idempotency-Key"), body);
                } catch (SQLException error) {
                    answer = controller.refused(error);
                }
            } catch (Exception error) {
                error.printStackTrace();
                answer = ResponseEntity.status(500).body("{\"status\": 500}");
            }
            byte[] text = answer.getBody().getBytes("UTF-8");
            exchange.sendResponseHeaders(answer.getStatusCode().value(), text.length);
            exchange.getResponseBody().write(text);
            exchange.close();
        });
        server.start();
    }
}
