// The heartbeat of worker and consumer: copy it together with stacksaga.go.
package main

import (
	"log"
	"time"

	"github.com/jackc/pgx/v4"
)

// The heartbeat, in a session of its own. When it fails the next one tries again: a lease lasts for three.
func (c *Client) beat() {
	for range time.Tick(c.Lease / 3) {
		if item := c.held.Load(); item != nil && !item.Lost.Load() {
			var extended []*Item
			db, err := pgx.Connect(always, settings)
			if err == nil {
				extended, err = query(db, item.extension...)
				db.Close(always)
			}
			if err != nil {
				log.Print("heartbeat: ", err)
				item.Lost.Store(isOf(err, "SG")) // somebody else's by now
			} else {
				item.Cancelled.Store(extended[0].Columns["cancel_requested"] == "t")
			}
		}
	}
}
