// `example work` does the steps of the queue "payments". Wants libpq's variables (PGHOST, ...).
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v4"
)

func charge(db *pgx.Conn, step *Item) (output string, err error) {
	err = db.QueryRow(context.Background(), "SELECT charge($1, $2, $3)::text",
		step.Columns["idempotency_key"], step.Columns["direction"], step.Columns["input"]).Scan(&output)
	return output, err
}

func book(db *pgx.Conn, message *Item) (string, error) {
	_, err := db.Exec(context.Background(), "INSERT INTO ledger (message_id, key, payload) VALUES ($1, $2, $3)",
		message.Columns["message_id"], message.Columns["key"], message.Columns["payload"])
	return "", err
}

func main() {
	stop, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	lease, err := time.ParseDuration(os.Getenv("LEASE") + "s")
	if err != nil {
		lease = 30 * time.Second
	}
	if client := (&Client{Lease: lease}); os.Args[1] == "work" {
		client.Work(stop, "payments", charge)
	} else {
		client.Consume(stop, "ledger", book)
	}
}
