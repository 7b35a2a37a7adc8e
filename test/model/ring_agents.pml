/* Agents: a master assigns a slot to an agent, and the agent assigns it to one of its own workers. Does a
 * slot get to a living worker, and to the one that it is assigned to, whatever dies and whoever publishes when?
 *
 * One slot, two agents with two workers each (0 and 1 are agent 0's, 2 and 3 agent 1's), one master. Locks are
 * left to ring.pml: here a take-over is one step. A window opens whenever it likes; in each one the master
 * publishes once, and each agent its part once, before the window opens or later. Assumed: a process that lives
 * and could go on does so some day (weak fairness). What is not said in a switch is as the extension does it.
 *
 *   OWNER_DIES    1: the owner may die at any instant
 *   AGENT_DIES    1: so may agent 0
 *   MASTER_DIES   1: so may the master
 *   SUCCESSOR     1: another registers agent 0's name at any instant; the older one, if it lives, goes on unaware
 *   DELAY         0 a dead agent's slots are reassigned at once, 1 some day (rebalance_delay), 2 never
 *   SWEEP         1: live workers take the slot of an owner that is dead
 *   MOVES         1: from any instant on the master assigns the slot to agent 1 for good
 *   CHECKED       0: an agent reads which slots it was assigned, and publishes without comparing
 *   INHERITS      0: a slot that an agent was assigned and has not assigned to a worker is lost to its successor
 *   WITHDRAWS     1: a window withdraws an agent's assignment to its own worker
 *
 * The claim is `owned`: from some time on the slot has a living owner; or, with MOVES, `settled`: from some time
 * on that is one of agent 1's. That an owner gets its work done is ring_live.pml's.
 */
#ifndef OWNER_DIES
#define OWNER_DIES 0
#endif
#ifndef AGENT_DIES
#define AGENT_DIES 0
#endif
#ifndef MASTER_DIES
#define MASTER_DIES 0
#endif
#ifndef SUCCESSOR
#define SUCCESSOR 0
#endif
#ifndef DELAY
#define DELAY 1
#endif
#ifndef SWEEP
#define SWEEP 0
#endif
#ifndef MOVES
#define MOVES 0
#endif
#ifndef CHECKED
#define CHECKED 1
#endif
#ifndef INHERITS
#define INHERITS 1
#endif
#ifndef WITHDRAWS
#define WITHDRAWS 0
#endif

#define WORKERS 4
#define AGENT_OF(worker) ((worker) / 2)
#define TO(agent) (WORKERS + (agent))        /* as next_owner: the agent's, to assign to a worker */
#define TO_NO_ONE 6                          /* a superseded incarnation */
#define NOBODY 7
#define IS_WORKER(holder) ((holder) < WORKERS)
#define IS_WITH(holder, agent) (IS_WORKER(holder) && AGENT_OF(holder) == agent || holder == TO(agent))
/* core::is_assigned_to_agent() */
#define IS_ASSIGNED(agent) (next_owner == NOBODY && IS_WITH(owner, agent) || IS_WITH(next_owner, agent))

byte owner;                     /* the row of the slot */
byte next_owner;
bool is_due = false;            /* the window from which next_owner may take over is open */
bool is_published = false;      /* the next window, by the master */
bool has_part[2];               /* by the agents */

byte mortal;                    /* the owner at first */
bool owner_is_dead = false;
bool agent_is_dead = false;     /* agent 0, unless it has a successor */
bool has_successor = false;
bool is_frozen = false;
bool master_is_dead = false;
bool is_moved = false;

#define LIVES(worker) (!owner_is_dead || (worker) != mortal)
#define AGENT_LIVES (!agent_is_dead || has_successor)

/* --------------------------------------------------------------------------- who may fail, and when */

proctype Failures() {
    if
    :: OWNER_DIES -> owner_is_dead = true
    :: skip
    fi;
    if
    :: AGENT_DIES -> atomic { agent_is_dead = true; is_frozen = (DELAY > 0) }
    :: skip
    fi;
    if
    :: MASTER_DIES -> master_is_dead = true
    :: skip
    fi
}

/* The delay is over: core::is_frozen(). */
proctype Patience() {
end:
    atomic { DELAY == 1 && is_frozen -> is_frozen = false }
}

proctype Time() {
end:
    do
    :: atomic { is_due = true; is_published = false; has_part[0] = false; has_part[1] = false }
    od
}

/* --------------------------------------------------------------------------------------- who publishes */

/* publish_window() for the whole ring: the slot stays with an agent one of whose workers owns it.
 * core::propose(). */
inline assign_to_agent(agent) {
    if
    :: IS_WITH(owner, agent) ->
        if
        :: IS_WORKER(next_owner) && IS_WITH(next_owner, agent) && !WITHDRAWS -> skip
        :: else -> next_owner = NOBODY
        fi
    :: !IS_WITH(owner, agent) && IS_WITH(next_owner, agent) -> skip
    :: else -> next_owner = TO(agent); is_due = false
    fi
}

/* The agent that has the slot keeps it, agent 0 while it lives or its slots are frozen for it. */
proctype Master() {
end:
    do
    :: atomic {
        !master_is_dead && !is_published ->
        is_published = true;
        if
        :: MOVES -> is_moved = true
        :: skip
        fi;
        if
        :: is_moved || IS_WITH(owner, 1) -> assign_to_agent(1)
        :: !is_moved && IS_WITH(owner, 0) && (AGENT_LIVES || is_frozen) -> assign_to_agent(0)
        :: !is_moved && owner == NOBODY && AGENT_LIVES -> assign_to_agent(0)
        :: else -> assign_to_agent(1)
        fi
       }
    :: master_is_dead -> break
    od
}

/* publish_window() for an agent's part: from the window that is open, or from the next one.
 * core::propose(). */
inline assign_to_worker(worker) {
    if
    :: owner == worker -> next_owner = NOBODY
    :: owner != worker && next_owner == worker -> skip
    :: else ->
        next_owner = worker;
        if
        :: is_due = true
        :: is_due = false
        fi
    fi
}

/* The worker that has the slot keeps it while it lives, else another one gets it. An incarnation notices
 * that it was superseded some time later, or never. */
proctype Agent(byte me; bool is_successor) {
    byte has_it;
    if
    :: is_successor ->                               /* core::inherit() */
        atomic {
            has_successor = true; is_frozen = false;
            if
            :: !INHERITS && next_owner == TO(me) -> next_owner = TO_NO_ONE
            :: else -> skip
            fi
        }
    :: else -> skip
    fi;
end:
    do
    :: atomic {
        IS_ASSIGNED(me) && !has_part[me] && !(agent_is_dead && me == 0 && !is_successor) ->
        has_it = (IS_WORKER(owner) && AGENT_OF(owner) == me -> owner :
                  (IS_WORKER(next_owner) -> next_owner : 2 * me));
        has_it = (LIVES(has_it) -> has_it : 4 * me + 1 - has_it)
       };
       atomic {
        if
        :: !has_part[me] && (!CHECKED || IS_ASSIGNED(me)) -> has_part[me] = true; assign_to_worker(has_it)
        :: else -> skip
        fi;
        has_it = 0
       }
    od
}

/* --------------------------------------------------------------------------------------------- workers */

/* core::may_take_over() and core::take(); core::sweep::spares(). */
proctype Worker(byte me) {
end:
    do
    :: atomic { LIVES(me) && next_owner == me && is_due -> owner = me; next_owner = NOBODY }
    :: atomic { SWEEP && LIVES(me) && (owner == NOBODY || !LIVES(owner)) -> owner = me }
    od
}

init {
    atomic {
        if
        :: owner = 0; next_owner = NOBODY
        :: owner = 0; next_owner = 1
        :: owner = 0; next_owner = TO(1)
        :: owner = 2; next_owner = TO(0)
        :: owner = NOBODY; next_owner = TO(0)
        fi;
        mortal = owner;
        run Failures();
        run Patience();
        run Time();
        run Master();
        run Agent(0, false);
        run Agent(1, false);
#if SUCCESSOR
        run Agent(0, true);
#endif
        run Worker(0);
        run Worker(1);
        run Worker(2);
        run Worker(3)
    }
}

#if MOVES
ltl settled { [] (is_moved -> <> [] (IS_WORKER(owner) && AGENT_OF(owner) == 1)) }
#else
ltl owned { <> [] (IS_WORKER(owner) && LIVES(owner)) }
#endif
