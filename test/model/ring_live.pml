/* Liveness of one slot of a token ring: whatever dies, due work is done, and a slot that a window gives to
 * another node gets there.
 *
 * Assumed, and nothing else: a process that lives and could go on does so some day (weak fairness), and a
 * handler ends. Node 0 owns the slot at first and may die at any instant, also while it holds the slot's
 * lock; node 1 lives. What is not said in a switch is as the extension does it.
 *
 *   MASTER_DIES   1: the only coordinator may die at any instant
 *   OWNER_DIES    1: so may the owner
 *   OWNER_LEAVES  1: the owner may leave as planned: it gives the slot to node 1, or proposes it when somebody
 *                 works in it; GIVES=0: it does neither
 *   LOSSES        so many publications may come to nothing (0)
 *   SWEEP         1: a live node takes the slots of an owner that is dead
 *   REAP          1: the lock of a dead session is released (the server does, with the session)
 *   FROZEN        1: the coordinator assigns to a dead node as if it lived (rebalance_delay without end)
 *   PAUSE         1: ownership ends with the window (on_missing_window = 'pause')
 *   BUSY          1: node 0 never ends working in the slot, in two sessions that overlap
 *   QUEUE         1: who waits for the exclusive lock keeps later sharers out
 *
 * The claim is `done`: the work is done; or, with BUSY, `handed`: what is proposed is taken over.
 */
#ifndef MASTER_DIES
#define MASTER_DIES 0
#endif
#ifndef OWNER_DIES
#define OWNER_DIES 0
#endif
#ifndef OWNER_LEAVES
#define OWNER_LEAVES 0
#endif
#ifndef GIVES
#define GIVES 1
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef SWEEP
#define SWEEP 1
#endif
#ifndef REAP
#define REAP 1
#endif
#ifndef FROZEN
#define FROZEN 0
#endif
#ifndef PAUSE
#define PAUSE 0
#endif
#ifndef BUSY
#define BUSY 0
#endif
#ifndef QUEUE
#define QUEUE 1
#endif

#define NOBODY 3
/* core::is_open() */
#if PAUSE
#define MAY_WORK (is_open && (proposed == NOBODY || proposed == owner))
#else
#define MAY_WORK true
#endif

byte owner = 0;
byte proposed = NOBODY;
byte sharers = 0;               /* of live sessions and dead ones */
byte left_behind = 0;           /* locks of dead sessions */
bool waits = false;             /* node 1 stands in the queue of the lock */
bool owner_is_dead = false;
bool owner_has_left = false;
bool master_is_dead = false;
bool work_is_done = false;
byte losses_left = LOSSES;
bool is_open = false;           /* PAUSE: the window that is open was published */
bool next_is_published = false;
bool had_turn = false;          /* PAUSE: node 1 came round since the window opened */

/* --------------------------------------------------------------------------- who may fail, and when */

proctype Failures() {
    if
    :: OWNER_DIES && !BUSY -> owner_is_dead = true
    :: skip
    fi;
    if
    :: MASTER_DIES -> master_is_dead = true
    :: skip
    fi
}

/* The server releases the locks of a dead session. */
proctype Server() {
end:
    do
    :: atomic { REAP && left_behind > 0 -> left_behind--; sharers-- }
    od
}

/* With PAUSE the coordinator publishes in every window and no window is over before node 1 had its turn,
 * while it lives. */
proctype Time() {
end:
    do
    :: atomic {
        PAUSE && had_turn && (next_is_published || master_is_dead) ->
        is_open = next_is_published; next_is_published = false; had_turn = false
       }
    od
}

/* ------------------------------------------------------------------------------------- coordinator */

/* Proposes node 1 once: when node 0 is dead, or, with BUSY, while it works. */
proctype Master() {
    bool has_assigned = false;
end:
    do
    :: atomic {
        !master_is_dead && (PAUSE && !next_is_published || !PAUSE && !has_assigned) ->
        if
        :: losses_left > 0 -> losses_left--
        :: losses_left == 0 ->
            next_is_published = true;
            if
            :: FROZEN -> proposed = NOBODY
            :: !FROZEN && owner == 0 && (owner_is_dead || BUSY) -> proposed = 1; has_assigned = true
            :: else -> skip
            fi
        fi
       }
    :: master_is_dead -> break
    od
}

/* ------------------------------------------------------------------------------------------- nodes */

inline work(me) {
    if
    :: atomic { owner == me && MAY_WORK && (!work_is_done || BUSY) && !(QUEUE && waits) -> sharers++ };
        /* the handler runs */
        atomic {
            if
            :: me == 0 && owner_is_dead -> left_behind++
            :: else -> work_is_done = true; sharers--
            fi
        }
    :: else -> skip
    fi
}

proctype Owner() {
end:
    do
    :: owner_is_dead || owner_has_left || owner != 0 -> break
    :: !owner_is_dead && !owner_has_left && owner == 0 -> work(0)
    :: atomic {
        OWNER_LEAVES && !owner_is_dead && !owner_has_left && owner == 0 ->
        owner_has_left = true;                       /* core::take(), core::propose_successor() */
        if
        :: GIVES && sharers == 0 -> owner = 1; proposed = NOBODY
        :: GIVES && sharers > 0 -> proposed = 1
        :: !GIVES -> owner = NOBODY
        fi
       }
    od
}

/* core::may_take_over() and core::take(); core::sweep::spares(). */
proctype Heir() {
end:
    do
    :: atomic { !(owner == 0 && (proposed == 1 || SWEEP && owner_is_dead)) -> had_turn = true };
        work(1)
    :: owner == 0 && (proposed == 1 || SWEEP && owner_is_dead) ->
        waits = true;
        atomic { sharers == 0 -> owner = 1; proposed = NOBODY; waits = false };
        had_turn = true;
        work(1)
    od
}

init {
    atomic {
        run Failures();
        run Server();
        run Time();
        run Master();
        run Owner();
#if BUSY
        run Owner();
#endif
        run Heir()
    }
}

#if BUSY
ltl handed { [] ((proposed == 1) -> <> (owner == 1)) }
#else
ltl done { <> work_is_done }
#endif
