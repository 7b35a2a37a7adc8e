/* Safety of one slot of a token ring: publication, take-over, pause and commit.
 *
 * Slots share nothing but the epoch counter, so one slot with one piece of work (two steps, each tried
 * at most twice) shows everything that can go wrong within a slot. A process may stop for any time
 * between any two of its transactions or inside one: that is Promela's interleaving. Each `atomic` is
 * what the database does in one piece, under a lock that nobody else can hold then.
 *
 * The processes: every incarnation of a node is one (Node), so that an older one can go on, unaware,
 * after its name was registered again; coordinators (Coordinator) assign the slot to any name, for whatever
 * reason; time (Clock) passes.
 *
 * What the switches are set to when nothing is said is what the extension does:
 *   NODES          names of nodes, each with one process (2)
 *   RESTART        1: the first name is registered once more while its older holder runs on
 *   COORDINATORS   side by side, without a leader (2)
 *   AGENT          1: a window may assign the slot to an agent, which assigns it to any name, once a window
 *   WINDOWS        how many there are (2), window 0 open at first
 *   CLOCK          0 exact; 1 every reading of the clock is any window (it jumps)
 *   SWEEP          1: nodes take the slot of an owner that is dead; 2: also of one wrongly thought dead
 *   SWEEPS         how many sweeps there may be (2)
 *   LEAVES         how often nodes give the slot away, as one does that leaves or drains (0)
 *   GIVER_LOCKS    0: who gives it away writes the row without the exclusive lock
 *   FENCE          5 what the extension does: shared lock on the slot, then its row, held to the commit
 *                  0 none: what the node remembers of its ownership
 *                  1 none, but the clock is read in the transaction: is my window still open?
 *                  2 none, but the row is read in the transaction
 *                  3 the row is read, then the lock is taken
 *                  4 lock and row, but the lock is let go before the commit
 *                  6 as 5, but the row says the owner's name and not its incarnation
 *   TAKER_LOCKS    0: who takes over writes the row without the exclusive lock
 *   TAKER_COMPARES 0: who takes over does not ask whether the row is still what it saw
 *   APART          1: a node beats and takes over in another process than it works in
 *   REREAD         0: the work found before the lock is not read again behind it
 *   MARKER         1: an effect's key is (step, attempt); 2: it is the step; 0: there is no marker
 *   CAS            0: the state of the work is written without comparing what it was
 *   CONSTRAINT     0: publishers check whether a window is there, then write it
 *   PAUSES         0: none of the work outlasts the window in which it began
 *
 * What is asserted, each if defined:
 *   ONCE    no step succeeds twice
 *   OWNER   who commits owns the slot at that instant
 *   ORDER   epochs of commits never go down
 *   RISES   every take-over raises the epoch
 *   KEEPS   nobody loses a slot to a sweep while it lives (only with SWEEP 1)
 *   SINGLE  a window is published once
 *   GIVES   nobody gives away a slot that is not its own
 */
#ifndef NODES
#define NODES 2
#endif
#ifndef RESTART
#define RESTART 1
#endif
#ifndef COORDINATORS
#define COORDINATORS 2
#endif
#ifndef AGENT
#define AGENT 0
#endif
#ifndef WINDOWS
#define WINDOWS 2
#endif
#ifndef CLOCK
#define CLOCK 1
#endif
#ifndef SWEEP
#define SWEEP 2
#endif
#ifndef SWEEPS
#define SWEEPS 2
#endif
#ifndef FENCE
#define FENCE 5
#endif
#ifndef LEAVES
#define LEAVES 0
#endif
#ifndef GIVER_LOCKS
#define GIVER_LOCKS 1
#endif
#ifndef TAKER_LOCKS
#define TAKER_LOCKS 1
#endif
#ifndef TAKER_COMPARES
#define TAKER_COMPARES 1
#endif
#ifndef APART
#define APART 0
#endif
#ifndef REREAD
#define REREAD 1
#endif
#ifndef MARKER
#define MARKER 2
#endif
#ifndef CAS
#define CAS 1
#endif
#ifndef CONSTRAINT
#define CONSTRAINT 1
#endif
#ifndef PAUSES
#define PAUSES 1
#endif

#ifndef STEPS
#define STEPS 2
#endif
#define TRIES 2
#define NOBODY 255
#define THE_AGENT 254
#define INCARNATIONS (NODES + RESTART)
#define NAME_OF(incarnation) ((incarnation) % NODES)
#define LOCKS (FENCE == 3 || FENCE >= 5)
#if SWEEP == 0
#define MAY_SWEEP false
#elif SWEEP == 1
#define MAY_SWEEP (owner == NOBODY || is_dead[owner])
#else
#define MAY_SWEEP true
#endif

/* --------------------------------------------------------------------------- what the database holds */

byte open_window = 0;                /* the time, in windows */
#if PAUSES
#define busy_changes(by) skip
#else
byte busy = 0;                       /* nodes in the middle of work */
#define busy_changes(by) busy = busy + by
#endif

byte ring_epoch = 0;                 /* one counter for windows and take-overs */
bool is_published[WINDOWS + 1];
#if AGENT
bool has_part[WINDOWS + 1];
#endif

byte owner = NOBODY;                 /* the row of the slot */
byte slot_epoch = 0;
byte next_owner = NOBODY;
byte next_from = 0;
byte sharers = 0;                    /* holders of the shared lock on it */

byte current[NODES];                 /* the incarnation of each name */
#if SWEEP == 1
bool is_dead[NODES + RESTART];
#endif
byte sweeps_left = SWEEPS;
#if LEAVES
byte leaves_left = LEAVES;
#endif

byte work_step = 0;                  /* the work: which step is due, and which attempt of it */
byte work_attempt = 0;
bool has_marker[STEPS * TRIES];      /* by step, or by step and attempt */

/* --------------------------------------------------------------------------- what really happened */

byte successes[STEPS];
#ifdef SINGLE
byte publications[WINDOWS + 1];
#endif
#ifdef ORDER
byte latest_epoch = 0;               /* of a commit */
#endif

inline read_clock(reading) {
#if CLOCK == 0
    reading = open_window;
#else
    reading = 0;
    do
    :: reading < WINDOWS -> reading++
    :: break
    od
#endif
}

#if PAUSES
#define MAY_PASS true
#else
#define MAY_PASS (busy == 0)
#endif

proctype Clock() {
    do
    :: atomic { open_window < WINDOWS && MAY_PASS -> open_window++ }
    :: open_window == WINDOWS -> break
    od
}

/* ------------------------------------------------------------------------------------ coordinators */

/* A proposal in the slot's row unless the slot stays where it is or the same proposal stands from before.
 * core::propose(). */
inline propose(window, node) {
    if
    :: owner == node -> next_owner = NOBODY; next_from = 0
    :: owner != node && next_owner == node && next_from <= window -> skip
    :: else -> next_owner = node; next_from = window
    fi
}

/* The window is the transaction of publish_window(): a row that can be inserted once, and the proposal. With an
 * agent, the proposal may be the agent; every node is its own, so that its assignment to a worker stays. */
inline write_window(window, name) {
    ring_epoch++;
    is_published[window] = true;
#ifdef SINGLE
    publications[window]++;
    assert(publications[window] == 1);
#endif
#if AGENT
    if
    :: propose(window, current[name])
    :: owner == NOBODY -> propose(window, THE_AGENT)
    :: owner != NOBODY && next_owner != THE_AGENT -> skip
    :: owner != NOBODY && next_owner == THE_AGENT -> next_owner = NOBODY; next_from = 0
    fi
#else
    propose(window, current[name])
#endif
}

/* It plans any window for any node, whatever it believes of them; it may stop for ever, and then its
 * publications are lost. */
proctype Coordinator() {
    byte window, name;
    bool is_taken;
end:
    do
    :: atomic {
        window = 1; name = 0;
        do
        :: window < WINDOWS -> window++
        :: break
        od;
        do
        :: name < NODES - 1 -> name++
        :: break
        od;
#if CONSTRAINT
        if
        :: !is_published[window] -> write_window(window, name)
        :: else -> skip                              /* another was first */
        fi;
        window = 0; name = 0
       }
#else
        is_taken = is_published[window]
       }
       atomic {
        if
        :: !is_taken -> write_window(window, name)
        :: else -> skip
        fi;
        window = 0; name = 0; is_taken = false
       }
#endif
    :: work_step == STEPS -> break
    od
}

#if AGENT
/* core::is_assigned_to_agent() */
#define IS_ASSIGNED (next_owner == NOBODY && owner != NOBODY || next_owner != NOBODY && next_from <= window)

/* The transaction of publish_window() for an agent's part of a window, which it may come late for. */
proctype Agent() {
    byte window, name;
end:
    do
    :: atomic {
        window = 0; name = 0;
        do
        :: window < WINDOWS -> window++
        :: break
        od;
        do
        :: name < NODES - 1 -> name++
        :: break
        od;
        if
        :: !has_part[window] && IS_ASSIGNED ->
            ring_epoch++;
            has_part[window] = true;
            propose(window, current[name])
        :: else -> skip
        fi;
        window = 0; name = 0
       }
    :: work_step == STEPS -> break
    od
}
#endif

/* ------------------------------------------------------------------------------------------- nodes */

/* A beat: finds that it may take the slot over (core::may_take_over(), core::sweep), and does so in another
 * step (core::take()). */
inline take_over() {
    atomic {
        read_clock(reading);
        wants = false; sweeps = false;
        if
        :: next_owner == me && next_from <= reading -> wants = true
        :: else ->
            if
            :: sweeps_left > 0 && owner != me && current[NAME_OF(me)] == me && MAY_SWEEP ->
                wants = true; sweeps = true
            :: skip
            fi
        fi;
        seen = slot_epoch; reading = 0
    }
    if
    :: wants ->
        atomic {
            if
            :: (!TAKER_LOCKS || sharers == 0) && (!TAKER_COMPARES || slot_epoch == seen) &&
               (!sweeps || sweeps_left > 0) ->
#ifdef KEEPS
                assert(!sweeps || owner == NOBODY || is_dead[owner]);
#endif
                ring_epoch++;
#ifdef RISES
                assert(ring_epoch > slot_epoch);
#endif
                sweeps_left = sweeps_left - (sweeps -> 1 : 0);
                if
                :: next_owner == me || next_owner == owner -> next_owner = NOBODY; next_from = 0
                :: else -> skip
                fi;
                owner = me; slot_epoch = ring_epoch
            :: else -> skip                          /* another time */
            fi;
            wants = false; sweeps = false; seen = 0
        }
    :: else -> skip
    fi
}

#if LEAVES
/* A leave: finds that it owns the slot, and gives it to another name (core::take()), or proposes that name when
 * somebody works in the slot (core::propose_successor()). The node may go on afterwards, as one that drains or comes
 * back. */
inline give_away() {
    atomic { seen = slot_epoch; wants = (owner == me && leaves_left > 0) };
    if
    :: wants ->
        atomic {
            reading = 0;
            do
            :: reading < NODES - 1 -> reading++
            :: break
            od;
            if
            :: leaves_left == 0 || reading == NAME_OF(me) || TAKER_COMPARES && slot_epoch != seen -> skip
            :: else ->
                leaves_left--;
                if
                :: !GIVER_LOCKS || sharers == 0 ->
#ifdef GIVES
                    assert(owner == me);
#endif
                    ring_epoch++;
#ifdef RISES
                    assert(ring_epoch > slot_epoch);
#endif
                    owner = current[reading]; slot_epoch = ring_epoch;
                    if
                    :: next_owner == me || next_owner == owner -> next_owner = NOBODY; next_from = 0
                    :: else -> skip
                    fi
                :: GIVER_LOCKS && sharers > 0 -> next_owner = current[reading]; next_from = 0
                fi
            fi;
            wants = false; seen = 0; reading = 0
        }
    :: else -> atomic { wants = false; seen = 0 }
    fi
}
#endif

/* What the owner finds in the first transaction of its turn, without any lock. */
inline find_work() {
    atomic {
        if
        :: owner == me && work_step < STEPS ->
            found = true; busy_changes(1);
#if FENCE == 1
            read_clock(window);
#endif
#if !LOCKS
            epoch = slot_epoch;
#endif
#if !REREAD || !LOCKS
            step = work_step; attempt = work_attempt
#endif
        :: else -> skip
        fi
    }
}

/* The start of the second one: whether it may work (fence.cpp). */
inline pass_fence() {
#if FENCE == 0
    passed = true
#elif FENCE == 1
    atomic { read_clock(reading); passed = (reading == window); reading = 0 }
#elif FENCE == 2
    atomic { passed = (owner == me && slot_epoch == epoch) }
#elif FENCE == 3
    atomic { passed = (owner == me); epoch = slot_epoch };
    atomic {
        if
        :: passed -> sharers++
        :: else -> skip
        fi
    }
#elif FENCE == 4
    atomic { passed = (owner == me); epoch = slot_epoch }  /* locked, read, and let go */
#elif FENCE == 5
    atomic {
        passed = (owner == me); epoch = slot_epoch;
        if
        :: passed -> sharers++
        :: else -> skip
        fi
    }
#elif FENCE == 6
    atomic {
        passed = (owner != NOBODY && NAME_OF(owner) == NAME_OF(me)); epoch = slot_epoch;
        if
        :: passed -> sharers++
        :: else -> skip
        fi
    }
#endif
}

inline unlock() {
#if LOCKS
    sharers--
#else
    skip
#endif
}

/* The handler's effect, its marker, the state of the work: all of them or none. It succeeds, or fails and
 * may be tried again, or is rolled back. */
inline commit_work() {
    if
#if MARKER == 1
    :: has_marker[step * TRIES + attempt] -> skip    /* there is one: rolled back */
#elif MARKER == 2
    :: has_marker[step * TRIES] -> skip
#endif
#if CAS
    :: work_step != step || work_attempt != attempt -> skip
#endif
    :: else ->
#ifdef OWNER
        assert(owner == me);
#endif
#ifdef ORDER
        assert(epoch >= latest_epoch);
        latest_epoch = (epoch > latest_epoch -> epoch : latest_epoch);
#endif
        if
        :: successes[step]++;
#ifdef ONCE
            assert(successes[step] == 1);
#endif
#if MARKER == 1
            has_marker[step * TRIES + attempt] = true;
#elif MARKER == 2
            has_marker[step * TRIES] = true;
#endif
            work_step = step + 1; work_attempt = 0
        :: attempt < TRIES - 1 -> work_step = step; work_attempt = attempt + 1
        fi
    fi
}

proctype Node(byte me) {
    byte reading, seen, step, attempt, epoch, window;
    bool wants, sweeps, found, passed;

    if
    :: me >= NODES ->                                /* registers an older one's name: core::inherit() */
        atomic {
            current[NAME_OF(me)] = me;
            if
            :: next_owner == NAME_OF(me) -> next_owner = me
            :: owner == NAME_OF(me) && next_owner == NOBODY -> next_owner = me; next_from = 0
            :: else -> skip
            fi
        }
    :: else -> skip
    fi;
    do
#if !APART
    :: work_step < STEPS -> take_over()
#if LEAVES
    :: work_step < STEPS -> give_away()
#endif
#endif
    :: work_step < STEPS ->
        find_work();
        if
        :: found ->
            pass_fence();
#if REREAD && LOCKS
            atomic {                                 /* locked: what was found is read again */
                if
                :: passed && work_step < STEPS -> step = work_step; attempt = work_attempt
                :: passed && work_step == STEPS -> passed = false; unlock()
                :: else -> skip
                fi
            }
#endif
            atomic {
                if
                :: passed -> commit_work(); unlock()
                :: passed -> unlock()                /* rolled back, or the session died: nothing stays */
                :: !passed -> skip
                fi;
                found = false; passed = false; step = 0; attempt = 0; epoch = 0; window = 0; busy_changes(-1)
            }
        :: else -> skip
        fi
#if SWEEP == 1
    :: atomic { is_dead[me] = true; break }
#else
    :: work_step == STEPS -> break
#endif
    od
}

#if APART
proctype Beats(byte me) {
    byte reading, seen;
    bool wants, sweeps;
    do
    :: work_step < STEPS -> take_over()
#if LEAVES
    :: work_step < STEPS -> give_away()
#endif
    :: work_step == STEPS -> break
    od
}
#endif

init {
    byte i = 0;
    atomic {
        do
        :: i < NODES -> current[i] = i; i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < INCARNATIONS ->
            run Node(i);
#if APART
            run Beats(i);
#endif
            i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < COORDINATORS -> run Coordinator(); i++
        :: else -> break
        od;
        i = 0;
#if AGENT
        run Agent();
#endif
#if CLOCK == 0
        run Clock()
#endif
    }
}
