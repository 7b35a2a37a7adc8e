// Package main: a worker of a queue, with pgx 4: copy it, and change it. consumer.go adds one of the outbox.
// Work calls effect(db, step), which returns the step's output, until the context is done.
// By the code of a *pgconn.PgError the effect says what this attempt did: class SG: nothing, and no other will; class SR but
// SR504: nothing, and SR425 gives the step back, so that the attempt is not counted. Any other error is unknown: it may have had
// its effect. An error's method RetryAfter() time.Duration, if any, says when the next attempt comes.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"math/rand"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
)

// Item is a step or a message. While the effect works, Lost or Cancelled may become true: then end soon.
type Item struct {
	Columns         map[string]string // as texts, NULL as an empty one
	Lost, Cancelled atomic.Bool
	extension       []any
}
type Effect func(db *pgx.Conn, item *Item) (output string, err error)
type Client struct {
	Lease  time.Duration
	db     *pgx.Conn
	answer []any                // to a step, until it has arrived
	held   atomic.Pointer[Item] // what the heartbeat extends
}

var always, name = context.Background(), fmt.Sprintf("go-%d", os.Getpid())

const settings = "connect_timeout=10 prefer_simple_protocol=true" // and libpq's variables; simple: for PgBouncer
const fail = "SELECT stacksaga.fail_step($1, $2, $3, $4, $5, $6)"
const release = "SELECT stacksaga.release_step($1, $2, $3, coalesce($4::interval, '10 s'), $5)"

// Runs a call: the SQL, then its arguments.
func query(db *pgx.Conn, call ...any) (items []*Item, err error) {
	rows, _ := db.Query(always, call[0].(string), call[1:]...)
	for rows.Next() {
		item := &Item{Columns: map[string]string{}}
		for i, value := range rows.RawValues() {
			item.Columns[string(rows.FieldDescriptions()[i].Name)] = string(value)
		}
		items = append(items, item)
	}
	return items, rows.Err()
}

func isOf(err error, codes string) bool {
	var raised *pgconn.PgError
	return errors.As(err, &raised) && regexp.MustCompile("^("+codes+")").MatchString(raised.Code)
}

// The call that reports an error. What nobody has said may have had its effect.
func failure(err error, call ...any) []any {
	class := map[bool]string{true: "retryable", false: "unknown"}[isOf(err, "SR") && !isOf(err, "SR504")]
	if isOf(err, "SG") {
		class = "non_retryable"
	}
	var after any // NULL: by the policy
	if pause, ok := err.(interface{ RetryAfter() time.Duration }); ok {
		after = pause.RetryAfter().String()
	}
	return append(call, strings.ReplaceAll(fmt.Sprintf("%.1000s", err), "\x00", ""), class, after)
}

// One turn after the other. After an error it waits, longer and longer, and connects again if it has to.
func (c *Client) run(stop context.Context, turn func() error) {
	go c.beat()
	for longest := 100 * time.Millisecond; c.answer != nil || stop.Err() == nil; {
		var err error
		if c.db == nil || c.db.IsClosed() {
			c.db, err = pgx.Connect(always, settings)
		}
		if err == nil {
			err = turn()
		}
		if c.answer == nil {
			c.held.Store(nil)
		}
		if err == nil {
			longest = 100 * time.Millisecond
		} else {
			log.Print("turn: ", err)
			if c.db != nil { // it may lead to a standby by now
				c.db.Close(always)
			}
			pause(stop, longest)
			longest = time.Duration(math.Min(2*float64(longest), float64(6*time.Second)))
		}
	}
}

func pause(stop context.Context, longest time.Duration) {
	select {
	case <-stop.Done():
		time.Sleep(100 * time.Millisecond)
	case <-time.After(longest/2 + time.Duration(rand.Int63n(int64(longest)/2))):
	}
}

func (c *Client) Work(stop context.Context, queue string, effect Effect) {
	c.run(stop, func() error {
		if c.answer == nil { // else one of before the connection was lost
			steps, err := query(c.db, "SELECT * FROM stacksaga.claim_steps($1, $2, 1, $3)", queue, name, c.Lease.String())
			if err == nil && len(steps) == 0 { // SIGTERM does not cut it short, so not for long
				_, err = query(c.db, "CALL stacksaga.wait_for_steps($1, '5 seconds')", queue)
			}
			if err != nil || len(steps) == 0 {
				return err
			}
			id, step, lease := steps[0].Columns["saga_id"], steps[0].Columns["step"], steps[0].Columns["lease"]
			steps[0].extension = []any{"SELECT * FROM stacksaga.extend_step($1, $2, $3, $4)", id, step, lease, c.Lease.String()}
			c.held.Store(steps[0])
			if stop.Err() != nil { // not begun: another one does it
				c.answer = []any{release, id, step, lease, "0", "the service stops"}
			} else if output, err := effect(c.db, steps[0]); err == nil {
				c.answer = []any{"SELECT stacksaga.complete_step($1, $2, $3, $4)", id, step, lease, output}
			} else if c.answer = failure(err, fail, id, step, lease); isOf(err, "SR425") {
				c.answer = []any{release, id, step, lease, c.answer[6], c.answer[4]}
			}
		}
		_, err := query(c.db, c.answer...)
		if err == nil || isOf(err, "SG4(04|09|12)") || c.answer[0] == fail && isOf(err, "SG|22|54") {
			c.answer = nil // which has arrived, or is refused: the step is somebody else's now, or was answered
		} else if isOf(err, "SG|22|54") { // the output, though the effect has happened
			c.answer = append(append([]any{fail}, c.answer[1:4]...), err.Error(), "unknown", nil)
		}
		return err // after any other one the next turn gives the answer again: twice is once
	})
}
