// A consumer of an outbox's subscription: copy it together with stacksaga.go.
package main

import (
	"context"

	"github.com/jackc/pgx/v4"
)

func (c *Client) Consume(stop context.Context, subscription string, effect Effect) {
	receive := "SELECT * FROM stacksaga.receive_messages($1, $2, 100, $3)"
	c.run(stop, func() error {
		messages, err := query(c.db, receive, subscription, name, c.Lease.String())
		if err == nil && len(messages) == 0 { // SIGTERM does not cut it short, so not for long
			_, err = query(c.db, "CALL stacksaga.wait_for_messages($1, '5 seconds', $2)", subscription, name)
		}
		if err != nil || len(messages) == 0 {
			return err
		}
		batch, failed := messages[0].Columns["batch_id"], map[string][]any{}
		messages[0].extension = []any{"SELECT stacksaga.extend_batch($1, $2)", batch, c.Lease.String()}
		c.held.Store(messages[0])
		return c.db.BeginFunc(always, func(all pgx.Tx) error { // SG412: somebody else has the batch, nothing was done
			for _, message := range messages {
				id, key := message.Columns["message_id"], message.Columns["key"]
				if key == "" {
					key = id
				}
				if failed[key] != nil { // later messages of a key wait for the one that failed
					continue
				}
				err := all.BeginFunc(always, func(pgx.Tx) (err error) { // a savepoint
					_, err = effect(c.db, message)
					return err
				})
				if err != nil {
					failed[key] = failure(err, "SELECT stacksaga.fail_message($1, $2, $3, $4, $5)", batch, id)
				}
			}
			for _, report := range failed {
				if _, err := query(c.db, report...); err != nil {
					return err
				}
			}
			_, err := query(c.db, "SELECT stacksaga.ack_messages($1)", batch)
			return err
		})
	})
}
