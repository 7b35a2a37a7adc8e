-- Rings: who works where, and until when. These tables are local to a server and carry no token; a
-- slot is a range of tokens.

CREATE SEQUENCE stacksaga.ring_id_seq AS integer START 2;
COMMENT ON SEQUENCE stacksaga.ring_id_seq IS 'Numbers rings; 1 is the default ring';

-- A row is never changed: what can be altered is in ring_setting, what rises in ring_epoch.
CREATE TABLE stacksaga.ring (
    ring_id    integer PRIMARY KEY,
    region     text NOT NULL CHECK (octet_length(region) BETWEEN 1 AND 63),
    cluster    text NOT NULL CHECK (octet_length(cluster) BETWEEN 1 AND 63),
    slots      integer NOT NULL CHECK (slots BETWEEN 64 AND 4096),
    created_at timestamptz NOT NULL,
    UNIQUE (region, cluster)
);
COMMENT ON TABLE stacksaga.ring IS
    'One row per ring: a virtual cluster with its own nodes, slots, windows and work';
COMMENT ON COLUMN stacksaga.ring.ring_id IS 'Numbers the rings; 1 is the default ring';
COMMENT ON COLUMN stacksaga.ring.region IS 'With the cluster, the name of the ring';
COMMENT ON COLUMN stacksaga.ring.cluster IS 'With the region, the name of the ring';
COMMENT ON COLUMN stacksaga.ring.slots IS 'How many equal parts of the token ring it has; chosen once';
COMMENT ON COLUMN stacksaga.ring.created_at IS 'When it was created';
INSERT INTO stacksaga.ring VALUES (1, 'default', 'default', 256, pg_catalog.clock_timestamp());

CREATE TABLE stacksaga.ring_setting (
    ring_id integer NOT NULL,
    setting text NOT NULL,
    value   text NOT NULL,
    PRIMARY KEY (ring_id, setting)
);
COMMENT ON TABLE stacksaga.ring_setting IS
    'The settings of a ring that differ from the defaults; intervals are in microseconds';
COMMENT ON COLUMN stacksaga.ring_setting.ring_id IS 'The ring';
COMMENT ON COLUMN stacksaga.ring_setting.setting IS 'The name of the setting, as alter_ring() takes it';
COMMENT ON COLUMN stacksaga.ring_setting.value IS 'Its value';

CREATE TABLE stacksaga.ring_epoch (
    ring_id integer PRIMARY KEY,
    epoch   bigint NOT NULL
) WITH (fillfactor = 10);
COMMENT ON TABLE stacksaga.ring_epoch IS
    'The epoch counter of a ring, which its windows and slots share; no row stands for 0';
COMMENT ON COLUMN stacksaga.ring_epoch.ring_id IS 'The ring';
COMMENT ON COLUMN stacksaga.ring_epoch.epoch IS 'The last epoch that was given out';

-- Kept by pg_dump, so that an incarnation of before a restore is never given again.
CREATE SEQUENCE stacksaga.node_incarnation_seq;
COMMENT ON SEQUENCE stacksaga.node_incarnation_seq IS 'Numbers incarnations of nodes';

-- What a heartbeat changes is not indexed, so its updates stay heap-only.
CREATE TABLE stacksaga.node (
    node          text PRIMARY KEY CHECK (octet_length(node) BETWEEN 1 AND 255),
    ring_id       integer NOT NULL,
    incarnation   bigint NOT NULL UNIQUE,
    kind          text NOT NULL CHECK (kind IN ('worker', 'standard', 'agent')),
    weight        double precision NOT NULL,
    agent         text,
    pid           integer,
    draining      boolean NOT NULL DEFAULT false,
    registered_at timestamptz NOT NULL,
    heartbeat_at  timestamptz NOT NULL,
    load          double precision NOT NULL DEFAULT 0,
    checkpoint_at timestamptz NOT NULL,
    progress      jsonb
) WITH (fillfactor = 50);
CREATE INDEX node_ring ON stacksaga.node (ring_id);
COMMENT ON TABLE stacksaga.node IS
    'Runtime: one row per node; its state follows from the age of its heartbeat';
COMMENT ON COLUMN stacksaga.node.node IS 'The name under which the node registered';
COMMENT ON COLUMN stacksaga.node.ring_id IS 'The ring that it belongs to';
COMMENT ON COLUMN stacksaga.node.kind IS 'worker, standard or agent: what it may own';
COMMENT ON COLUMN stacksaga.node.weight IS 'Its share of the slots in relation to other nodes';
COMMENT ON COLUMN stacksaga.node.draining IS 'Whether it gives its slots away and gets no new ones';
COMMENT ON COLUMN stacksaga.node.registered_at IS 'When this incarnation registered';
COMMENT ON COLUMN stacksaga.node.heartbeat_at IS 'When it sent its last heartbeat';
COMMENT ON COLUMN stacksaga.node.load IS 'What the node said of its load at its last heartbeat; nothing here uses it';
COMMENT ON COLUMN stacksaga.node.progress IS 'What it reported at its last checkpoint';
COMMENT ON COLUMN stacksaga.node.incarnation IS
    'Changes when the name is registered again, which fences its older holder';
COMMENT ON COLUMN stacksaga.node.agent IS 'The agent that assigns slots to this node';
COMMENT ON COLUMN stacksaga.node.pid IS 'The process of a background worker of this server';
COMMENT ON COLUMN stacksaga.node.checkpoint_at IS 'When the node last reported its progress';

-- Ownership and fencing live here and nowhere else. A change of owner happens under the exclusive
-- lock on the slot and raises the epoch (extension/src/ring/fence.hpp).
CREATE TABLE stacksaga.slot (
    ring_id     integer NOT NULL,
    slot        integer NOT NULL CHECK (slot >= 0),
    range_start bigint NOT NULL,
    range_end   bigint NOT NULL,
    owner       bigint,
    epoch       bigint NOT NULL DEFAULT 0,
    next_owner  bigint,
    next_from   timestamptz,
    PRIMARY KEY (ring_id, slot)
) WITH (fillfactor = 40);
COMMENT ON TABLE stacksaga.slot IS
    'Runtime: one row per slot of a ring, updated in place: who owns it, and what a window proposes';
COMMENT ON COLUMN stacksaga.slot.ring_id IS 'The ring';
COMMENT ON COLUMN stacksaga.slot.slot IS 'The number of the slot, from 0';
COMMENT ON COLUMN stacksaga.slot.range_start IS 'The first token in it';
COMMENT ON COLUMN stacksaga.slot.range_end IS 'The last token in it';
COMMENT ON COLUMN stacksaga.slot.epoch IS 'Rises with each change of owner, which fences the older one';
COMMENT ON COLUMN stacksaga.slot.next_from IS 'When next_owner may take the slot over';
COMMENT ON COLUMN stacksaga.slot.owner IS 'The incarnation of a node';
COMMENT ON COLUMN stacksaga.slot.next_owner IS
    'The incarnation that may take the slot over from next_from on; null: nothing is proposed';

CREATE TABLE stacksaga.token_window (
    ring_id      integer NOT NULL,
    window_start timestamptz NOT NULL,
    agent        text NOT NULL DEFAULT '',
    window_end   timestamptz NOT NULL,
    epoch        bigint NOT NULL,
    published_at timestamptz NOT NULL,
    publisher    text NOT NULL,
    PRIMARY KEY (ring_id, window_start, agent)
);
COMMENT ON TABLE stacksaga.token_window IS
    'Runtime: one row per published window of a ring; the first publisher wins';
COMMENT ON COLUMN stacksaga.token_window.ring_id IS 'The ring';
COMMENT ON COLUMN stacksaga.token_window.window_start IS 'When the window opens';
COMMENT ON COLUMN stacksaga.token_window.window_end IS 'When it ends';
COMMENT ON COLUMN stacksaga.token_window.epoch IS 'The epoch that it was published with';
COMMENT ON COLUMN stacksaga.token_window.published_at IS 'When it was published';
COMMENT ON COLUMN stacksaga.token_window.publisher IS 'Who published it';
COMMENT ON COLUMN stacksaga.token_window.agent IS
    'The agent whose part of the window this is; empty: the window of the whole ring';

CREATE TABLE stacksaga.ring_adoption (
    from_ring_id integer NOT NULL,
    to_ring_id   integer NOT NULL,
    epoch        bigint NOT NULL,
    sagas        bigint NOT NULL,
    role         name NOT NULL,
    reason       text NOT NULL,
    adopted_at   timestamptz NOT NULL,
    on_behalf_of text,
    PRIMARY KEY (from_ring_id, epoch)
);
COMMENT ON TABLE stacksaga.ring_adoption IS
    'One row per call of adopt_ring(): what moved, and which role called it';
COMMENT ON COLUMN stacksaga.ring_adoption.from_ring_id IS 'The ring that was dead';
COMMENT ON COLUMN stacksaga.ring_adoption.to_ring_id IS 'The ring that took its work';
COMMENT ON COLUMN stacksaga.ring_adoption.epoch IS 'The epoch of the dead ring from which on its nodes own nothing';
COMMENT ON COLUMN stacksaga.ring_adoption.sagas IS 'How many sagas moved';
COMMENT ON COLUMN stacksaga.ring_adoption.role IS 'The role that called adopt_ring()';
COMMENT ON COLUMN stacksaga.ring_adoption.reason IS 'The reason that it gave';
COMMENT ON COLUMN stacksaga.ring_adoption.adopted_at IS 'When it was';
COMMENT ON COLUMN stacksaga.ring_adoption.on_behalf_of IS 'Whom the role acted for, by its own account';

SELECT pg_catalog.pg_extension_config_dump('stacksaga.ring_adoption', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.ring_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.ring', 'WHERE ring_id <> 1');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.ring_setting', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.ring_epoch', '');
SELECT pg_catalog.pg_extension_config_dump('stacksaga.node_incarnation_seq', '');
