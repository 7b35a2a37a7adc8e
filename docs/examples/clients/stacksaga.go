// Package main: a worker of a queue and a consumer of an outbox's subscription, with pgx 4: copy it, and change it.
//
//	New(lease).Work(stop, queue, effect)             calls effect(db, step), which returns the step's output
//	New(lease).Consume(stop, subscription, effect)   the same in the transaction that acknowledges the message
//
// Both return when the context is done. An error of the effect says what it means if it is a *pgconn.PgError.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
)

// Item is a step or a message. While the effect works, Lost or Cancelled may become true: then end soon.
type Item struct {
	SagaID, Step, Direction, IdempotencyKey, MessageID, Topic string
	Lease, Batch                                              int64
	Key                                                       *string // of a message
	Input                                                     []byte  // of a step, or the payload of a message
	Lost, Cancelled                                           atomic.Bool
}
type Effect func(db *pgx.Conn, item *Item) (output string, err error)
type call struct {
	sql       string
	arguments []any
}
type Client struct {
	lease  time.Duration
	db     *pgx.Conn
	answer *call // to a step, until it has arrived
	held   atomic.Pointer[Item]
}

var (
	always = context.Background()
	name   = fmt.Sprintf("go-%d", os.Getpid())
)

func New(lease time.Duration) *Client { return &Client{lease: lease} }

func connect() (*pgx.Conn, error) {
	config, err := pgx.ParseConfig("connect_timeout=10") // and libpq's variables
	if err != nil {
		return nil, err
	}
	config.PreferSimpleProtocol = true // no prepared statements: PgBouncer in transaction mode
	return pgx.ConnectConfig(always, config)
}

func isOf(err error, class string) bool {
	var raised *pgconn.PgError
	return errors.As(err, &raised) && strings.HasPrefix(raised.Code, class)
}

// The arguments error and error_class. An unknown error may not come again.
func failure(err error) (string, string) {
	text := strings.ReplaceAll(err.Error(), "\x00", "")
	if isOf(err, "SR504") {
		return text, "unknown"
	} else if isOf(err, "SG") {
		return text, "non_retryable"
	}
	return text, "retryable"
}

// The heartbeat, in a session of its own. When it fails the next one tries again: a lease lasts for three.
func (c *Client) beat() {
	var db *pgx.Conn
	for range time.Tick(c.lease / 3) {
		item := c.held.Load()
		if item == nil || item.Lost.Load() {
			continue
		}
		var err error
		if db == nil || db.IsClosed() {
			db, err = connect()
		}
		var cancelled bool
		if err == nil && item.Batch != 0 {
			_, err = db.Exec(always, "SELECT stacksaga.extend_batch($1, $2)", item.Batch, c.lease.String())
		} else if err == nil {
			err = db.QueryRow(always, "SELECT cancel_requested FROM stacksaga.extend_step($1, $2, $3, $4)",
				item.SagaID, item.Step, item.Lease, c.lease.String()).Scan(&cancelled)
		}
		item.Cancelled.Store(cancelled)
		if err != nil {
			log.Print("heartbeat: ", err)
			item.Lost.Store(isOf(err, "SG")) // somebody else's by now
		}
	}
}

// One turn after the other. After an error it connects again, later and later, and not all at once.
func (c *Client) run(stop context.Context, turn func() error) {
	go c.beat()
	for pause := 100 * time.Millisecond; c.answer != nil || stop.Err() == nil; {
		var err error
		if c.db == nil || c.db.IsClosed() {
			c.db, err = connect()
		}
		if err == nil {
			err = turn()
		}
		if err == nil {
			pause = 100 * time.Millisecond
		} else if c.answer != nil || stop.Err() == nil {
			log.Print("turn: ", err)
			if c.db != nil {
				c.db.Close(always)
			}
			time.Sleep(time.Duration(float64(pause) * (0.5 + rand.Float64()/2)))
			if pause < 20*time.Second {
				pause *= 2
			}
		}
	}
}

func (c *Client) Work(stop context.Context, queue string, effect Effect) {
	c.run(stop, func() error {
		if c.answer != nil { // of before the connection was lost
			if err := c.giveAnswer(); err != nil {
				return err
			}
		}
		if stop.Err() != nil {
			return nil
		}
		step := &Item{}
		err := c.db.QueryRow(always, "SELECT saga_id::text, step, direction, idempotency_key, input, lease"+
			" FROM stacksaga.claim_steps($1, $2, 1, $3)", queue, name, c.lease.String()).Scan(
			&step.SagaID, &step.Step, &step.Direction, &step.IdempotencyKey, &step.Input, &step.Lease)
		if errors.Is(err, pgx.ErrNoRows) {
			return c.wait(stop, queue)
		} else if err != nil {
			return err
		}
		c.held.Store(step)
		if output, err := effect(c.db, step); err == nil {
			c.answer = &call{"SELECT stacksaga.complete_step($1, $2, $3, $4)", []any{step.SagaID, step.Step, step.Lease, output}}
		} else {
			log.Print("step: ", err)
			text, class := failure(err)
			c.answer = &call{"SELECT stacksaga.fail_step($1, $2, $3, $4, $5)", []any{step.SagaID, step.Step, step.Lease, text, class}}
		}
		return c.giveAnswer()
	})
}

// A context that is done would leave the server waiting, so this cancels. Before the statement it does nothing: again.
func (c *Client) wait(stop context.Context, queue string) error {
	done, server := make(chan bool), c.db.PgConn()
	go func(stopped <-chan struct{}) {
		for {
			select {
			case <-done:
				return
			case <-stopped:
				server.CancelRequest(always)
				time.Sleep(100 * time.Millisecond)
			}
		}
	}(stop.Done())
	_, err := c.db.Exec(always, "CALL stacksaga.wait_for_steps($1)", queue)
	close(done)
	if stop.Err() != nil && isOf(err, "57014") {
		return nil
	}
	return err
}

// Under the same lease it may be repeated, so an answer whose reply was lost is given again.
func (c *Client) giveAnswer() error {
	_, err := c.db.Exec(always, c.answer.sql, c.answer.arguments...)
	if err != nil && !isOf(err, "SG") && !isOf(err, "22") {
		return err
	} else if err != nil {
		log.Print("answer dropped: ", err) // SG412: the step is somebody else's now
	}
	c.answer = nil
	c.held.Store(nil)
	return nil
}

func (c *Client) Consume(stop context.Context, subscription string, effect Effect) {
	c.run(stop, func() error {
		rows, err := c.db.Query(always, "SELECT batch_id, message_id::text, topic, key, payload"+
			" FROM stacksaga.receive_messages($1, $2, 100, $3)", subscription, name, c.lease.String())
		if err != nil {
			return err
		}
		var messages []*Item
		for rows.Next() {
			message := &Item{}
			if err := rows.Scan(&message.Batch, &message.MessageID, &message.Topic, &message.Key, &message.Input); err != nil {
				return err
			}
			messages = append(messages, message)
		}
		if rows.Err() == nil && len(messages) == 0 {
			select {
			case <-stop.Done():
			case <-time.After(time.Duration((0.5 + rand.Float64()/2) * float64(time.Second))):
			}
		}
		if rows.Err() != nil || len(messages) == 0 {
			return rows.Err()
		}
		c.held.Store(messages[0])
		defer c.held.Store(nil)
		return c.doBatch(messages, effect)
	})
}

// After an error, such as SG412 for a batch that somebody else has by now, nothing was done.
func (c *Client) doBatch(messages []*Item, effect Effect) error {
	batch := messages[0].Batch
	return c.db.BeginFunc(always, func(all pgx.Tx) error {
		failed, keys := []call{}, map[string]bool{}
		for _, message := range messages {
			if message.Key != nil && keys[*message.Key] { // later messages of a key wait for one that failed
				continue
			}
			err := all.BeginFunc(always, func(pgx.Tx) error { // a savepoint
				_, err := effect(c.db, message)
				return err
			})
			if err != nil {
				text, class := failure(err)
				failed = append(failed, call{"SELECT stacksaga.fail_message($1, $2, $3, $4)", []any{batch, message.MessageID, text, class}})
				if message.Key != nil {
					keys[*message.Key] = true
				}
			}
		}
		for _, report := range append(failed, call{"SELECT stacksaga.ack_messages($1)", []any{batch}}) {
			if _, err := all.Exec(always, report.sql, report.arguments...); err != nil {
				return err
			}
		}
		return nil
	})
}
