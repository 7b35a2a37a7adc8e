-- What each column of the views says; test/tools/catalog/comments.sql notices a missing one.

COMMENT ON COLUMN stacksaga.ring_settings.region IS 'The region of the ring';
COMMENT ON COLUMN stacksaga.ring_settings.cluster IS 'The cluster of the ring';
COMMENT ON COLUMN stacksaga.ring_settings.setting IS 'The name of the setting, as alter_ring() takes it';
COMMENT ON COLUMN stacksaga.ring_settings.value IS 'Its value; the default where it was not altered';
COMMENT ON COLUMN stacksaga.ring_settings.ring_id IS 'The number of the ring';

COMMENT ON COLUMN stacksaga.nodes.region IS 'The region of the ring';
COMMENT ON COLUMN stacksaga.nodes.cluster IS 'The cluster of the ring';
COMMENT ON COLUMN stacksaga.nodes.node IS 'The name under which the node registered';
COMMENT ON COLUMN stacksaga.nodes.kind IS 'worker, standard or agent: what it may own';
COMMENT ON COLUMN stacksaga.nodes.state IS 'active, suspected, dead or draining, by the age of its heartbeat';
COMMENT ON COLUMN stacksaga.nodes.load IS 'What the node said of its load at its last heartbeat; nothing here uses it';
COMMENT ON COLUMN stacksaga.nodes.weight IS 'Its share of the slots in relation to other nodes';
COMMENT ON COLUMN stacksaga.nodes.heartbeat_age IS 'Time since its last heartbeat';
COMMENT ON COLUMN stacksaga.nodes.share IS 'The part of the ring that it owns, 0 to 1';
COMMENT ON COLUMN stacksaga.nodes.progress IS 'What it reported at its last checkpoint';
COMMENT ON COLUMN stacksaga.nodes.incarnation IS
    'Rises when the name is registered again, which fences the older holder';
COMMENT ON COLUMN stacksaga.nodes.agent IS 'The agent that assigns slots to it; null: a coordinator';
COMMENT ON COLUMN stacksaga.nodes.pid IS 'The process of a background worker; null: a service';
COMMENT ON COLUMN stacksaga.nodes.checkpoint_age IS 'Time since it reported its progress; null: never';

COMMENT ON COLUMN stacksaga.ring_status.region IS 'The region of the ring';
COMMENT ON COLUMN stacksaga.ring_status.cluster IS 'The cluster of the ring';
COMMENT ON COLUMN stacksaga.ring_status.epoch IS 'Counts windows and changes of owners';
COMMENT ON COLUMN stacksaga.ring_status.window_start IS 'When the window opened that opened last';
COMMENT ON COLUMN stacksaga.ring_status.window_end IS 'When that window ends';
COMMENT ON COLUMN stacksaga.ring_status.active_nodes IS 'Nodes whose heartbeat is recent';
COMMENT ON COLUMN stacksaga.ring_status.total_nodes IS 'Nodes that are shown in nodes';
COMMENT ON COLUMN stacksaga.ring_status.coverage IS 'The part of the ring that nodes own that are not dead, 0 to 1';
COMMENT ON COLUMN stacksaga.ring_status.oldest_due IS 'When the oldest work of the ring was or will be due';
COMMENT ON COLUMN stacksaga.ring_status.publisher IS
    'The coordinator that published that window; null: a standalone ring';

COMMENT ON COLUMN stacksaga.ring_adoptions.from_region IS 'The region of the ring that was dead';
COMMENT ON COLUMN stacksaga.ring_adoptions.from_cluster IS 'The cluster of the ring that was dead';
COMMENT ON COLUMN stacksaga.ring_adoptions.to_region IS 'The region of the ring that took its work';
COMMENT ON COLUMN stacksaga.ring_adoptions.to_cluster IS 'The cluster of the ring that took its work';
COMMENT ON COLUMN stacksaga.ring_adoptions.sagas IS 'How many sagas moved';
COMMENT ON COLUMN stacksaga.ring_adoptions.role IS 'The role that called adopt_ring()';
COMMENT ON COLUMN stacksaga.ring_adoptions.reason IS 'The reason that it gave';
COMMENT ON COLUMN stacksaga.ring_adoptions.adopted_at IS 'When it was';

COMMENT ON COLUMN stacksaga.worker_stats.database IS 'The database that the worker serves';
COMMENT ON COLUMN stacksaga.worker_stats.pid IS 'Its process';
COMMENT ON COLUMN stacksaga.worker_stats.started_at IS 'When it started';
COMMENT ON COLUMN stacksaga.worker_stats.turns IS 'Transactions in which it looked for work';
COMMENT ON COLUMN stacksaga.worker_stats.items IS 'Items that it has done';
COMMENT ON COLUMN stacksaga.worker_stats.failures IS 'Attempts that failed';
COMMENT ON COLUMN stacksaga.worker_stats.last_turn_ms IS 'How long its last turn took';
COMMENT ON COLUMN stacksaga.worker_stats.mode IS 'standalone or coordinator, as stacksaga.coordination says';
COMMENT ON COLUMN stacksaga.worker_stats.deferred IS 'Retries that it deferred, since the retry budget was empty';

COMMENT ON COLUMN stacksaga.sagas.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.sagas.saga IS 'The name of its definition';
COMMENT ON COLUMN stacksaga.sagas.version IS 'The version of the definition that it began with';
COMMENT ON COLUMN stacksaga.sagas.key IS 'The key that it was started with';
COMMENT ON COLUMN stacksaga.sagas.status IS 'pending, running, suspended, compensating, parked, completed or failed';
COMMENT ON COLUMN stacksaga.sagas.current_step IS 'The step that is due first; null: none';
COMMENT ON COLUMN stacksaga.sagas.attempt IS 'The attempt of the current step';
COMMENT ON COLUMN stacksaga.sagas.paused_until IS 'When the next attempt is due, while that lies in the future';
COMMENT ON COLUMN stacksaga.sagas.region IS 'The region of the ring';
COMMENT ON COLUMN stacksaga.sagas.cluster IS 'The cluster of the ring';
COMMENT ON COLUMN stacksaga.sagas.token IS 'Its place on the ring';
COMMENT ON COLUMN stacksaga.sagas.input IS 'What it was started with';
COMMENT ON COLUMN stacksaga.sagas.output IS 'The output of each step, by name, once it is completed';
COMMENT ON COLUMN stacksaga.sagas.last_error IS 'The error of the last attempt that failed';
COMMENT ON COLUMN stacksaga.sagas.created_at IS 'When it was started';
COMMENT ON COLUMN stacksaga.sagas.updated_at IS 'When its row was last changed';
COMMENT ON COLUMN stacksaga.sagas.finished_at IS 'When it completed or failed';
COMMENT ON COLUMN stacksaga.sagas.parent_id IS 'The saga whose step started it; null: none';
COMMENT ON COLUMN stacksaga.sagas.pause_reason IS 'SR429 while a retry waits for the retry budget';
COMMENT ON COLUMN stacksaga.sagas.priority IS '1 (first) to 5';
COMMENT ON COLUMN stacksaga.sagas.group_key IS 'Groups of a queue take turns; null: no group';
COMMENT ON COLUMN stacksaga.sagas.attributes IS 'What find_sagas() may look for';
COMMENT ON COLUMN stacksaga.sagas.compensation_requested IS
    'cancel, deadline or failure: compensation starts once no irreversible step is in flight or in doubt; null: nothing waits so';

COMMENT ON COLUMN stacksaga.saga_history.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.saga_history.step IS 'The name of the step';
COMMENT ON COLUMN stacksaga.saga_history.direction IS 'act or compensate';
COMMENT ON COLUMN stacksaga.saga_history.attempt IS 'Counts from 1 for each step and direction';
COMMENT ON COLUMN stacksaga.saga_history.status IS 'started, completed or failed';
COMMENT ON COLUMN stacksaga.saga_history.error IS 'The error of a failed attempt';
COMMENT ON COLUMN stacksaga.saga_history.error_class IS 'retryable, non_retryable and so on: what the failure means';
COMMENT ON COLUMN stacksaga.saga_history.started_at IS 'When the attempt began';
COMMENT ON COLUMN stacksaga.saga_history.finished_at IS 'When it was answered; null: not yet';
COMMENT ON COLUMN stacksaga.saga_history.worker IS 'Who did it';
COMMENT ON COLUMN stacksaga.saga_history.progress IS
    'What the service of a started one has said last, with extend_step(); null: nothing';
COMMENT ON COLUMN stacksaga.saga_history.published IS
    'How many messages its handler published, and topic, key and id of the first 20; null: none';

COMMENT ON COLUMN stacksaga.saga_actions.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.saga_actions.action IS
    'cancel, suspend, resume, retry, resolve, redact or acknowledge; void: an irreversible step was done, so a pending compensation ended';
COMMENT ON COLUMN stacksaga.saga_actions.step IS 'The step that was resolved, whose answer was acknowledged, or that is irreversible and done';
COMMENT ON COLUMN stacksaga.saga_actions.outcome IS 'done, not_done or never, of a step that was resolved';
COMMENT ON COLUMN stacksaga.saga_actions.role IS 'The role that acted';
COMMENT ON COLUMN stacksaga.saga_actions.reason IS 'The reason that it gave';
COMMENT ON COLUMN stacksaga.saga_actions.acted_at IS 'When it was';
COMMENT ON COLUMN stacksaga.saga_actions.status_before IS 'The status of the saga before';
COMMENT ON COLUMN stacksaga.saga_actions.status_after IS 'The status of the saga after';
COMMENT ON COLUMN stacksaga.saga_actions.on_behalf_of IS
    'Whom the role acted for, by its own account: stacksaga.on_behalf_of of its session';

COMMENT ON COLUMN stacksaga.definitions.saga IS 'The name of the saga';
COMMENT ON COLUMN stacksaga.definitions.version IS 'Counts from 1';
COMMENT ON COLUMN stacksaga.definitions.is_current IS 'Whether new sagas take it';
COMMENT ON COLUMN stacksaga.definitions.steps IS 'How many steps it has';
COMMENT ON COLUMN stacksaga.definitions.definer IS 'The role that its functions run as';
COMMENT ON COLUMN stacksaga.definitions.defined_at IS 'When it was first defined';
COMMENT ON COLUMN stacksaga.definitions.paused IS 'Whether no attempt of a step of any version begins';
COMMENT ON COLUMN stacksaga.definitions.paused_since IS 'Since when it is paused';
COMMENT ON COLUMN stacksaga.definitions.paused_until IS 'From when on it is not paused; null: it is not, or until resume_definition()';
COMMENT ON COLUMN stacksaga.definitions.pause_reason IS 'The reason that was given';
COMMENT ON COLUMN stacksaga.definitions.live_sagas IS 'Sagas of this version that have not ended, counted up to 1,000';

COMMENT ON COLUMN stacksaga.queues.queue IS 'The name of the queue';
COMMENT ON COLUMN stacksaga.queues.waiting IS 'Steps that are due and not claimed, counted up to 10,000';
COMMENT ON COLUMN stacksaga.queues.running IS 'Steps that are leased, counted up to 10,000';
COMMENT ON COLUMN stacksaga.queues.oldest_due IS 'Since when the oldest of them waits';
COMMENT ON COLUMN stacksaga.queues.paused IS 'Whether nobody may claim new steps';
COMMENT ON COLUMN stacksaga.queues.max_running IS 'How many steps may run at once; null: any number';
COMMENT ON COLUMN stacksaga.queues.max_running_per_group IS 'How many of a group may run at once; null: any number';
COMMENT ON COLUMN stacksaga.queues.rate IS 'How many may be claimed in rate_interval; null: any number';
COMMENT ON COLUMN stacksaga.queues.rate_interval IS 'The length of the window of rate';
COMMENT ON COLUMN stacksaga.queues.paused_since IS 'Since when it is paused';
COMMENT ON COLUMN stacksaga.queues.pause_reason IS 'The reason that was given';
COMMENT ON COLUMN stacksaga.queues.region IS 'The region of the ring';
COMMENT ON COLUMN stacksaga.queues.cluster IS 'The cluster of the ring';
COMMENT ON COLUMN stacksaga.queues.completed IS 'Attempts that this server has seen completed';
COMMENT ON COLUMN stacksaga.queues.failed IS 'Attempts that this server has seen fail';
COMMENT ON COLUMN stacksaga.queues.suspended_leases IS 'Leases that do not run out and count for the limits, as their saga is suspended; counted up to 10,000';
COMMENT ON COLUMN stacksaga.queues.paused_until IS 'From when on it is not paused; null: it is not, or until resume_queue()';

COMMENT ON COLUMN stacksaga.schedules.schedule IS 'The name of the schedule';
COMMENT ON COLUMN stacksaga.schedules.saga IS 'The saga that it starts';
COMMENT ON COLUMN stacksaga.schedules.cron IS 'The instants, as a cron expression';
COMMENT ON COLUMN stacksaga.schedules.timezone IS 'The time zone of the expression';
COMMENT ON COLUMN stacksaga.schedules.paused IS 'Whether it starts nothing';
COMMENT ON COLUMN stacksaga.schedules.next_run IS 'The first instant that is not settled; null: paused, or none';
COMMENT ON COLUMN stacksaga.schedules.last_run IS 'The last instant whose saga it started';
COMMENT ON COLUMN stacksaga.schedules.last_saga_id IS 'That saga';
COMMENT ON COLUMN stacksaga.schedules.catch_up IS 'Which missed runs start their sagas: skip, last or all';
COMMENT ON COLUMN stacksaga.schedules.overlap IS 'Whether a run starts while the last one runs: allow or skip';
COMMENT ON COLUMN stacksaga.schedules.input IS 'The input of its sagas';
COMMENT ON COLUMN stacksaga.schedules.role IS 'The role whose rights its sagas are started with';
COMMENT ON COLUMN stacksaga.schedules.failures IS 'How often in a row its next run could not start';
COMMENT ON COLUMN stacksaga.schedules.failed_since IS 'Since when that is so';
COMMENT ON COLUMN stacksaga.schedules.last_error IS 'Why';
COMMENT ON COLUMN stacksaga.schedules.next_attempt IS 'When it is tried again';
COMMENT ON COLUMN stacksaga.schedules.paused_since IS 'Since when it is paused';
COMMENT ON COLUMN stacksaga.schedules.pause_reason IS 'The reason that was given';
COMMENT ON COLUMN stacksaga.schedules.skipped IS
    'How many runs in a row were skipped by overlap since the last one that started';
COMMENT ON COLUMN stacksaga.schedules.skipped_since IS 'The instant of the first one of these';
COMMENT ON COLUMN stacksaga.schedules.region IS 'The region of the ring';
COMMENT ON COLUMN stacksaga.schedules.cluster IS 'The cluster of the ring';

COMMENT ON COLUMN stacksaga.parked_sagas.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.parked_sagas.saga IS 'The name of its definition';
COMMENT ON COLUMN stacksaga.parked_sagas.key IS 'The key that it was started with';
COMMENT ON COLUMN stacksaga.parked_sagas.step IS 'The step that parked it';
COMMENT ON COLUMN stacksaga.parked_sagas.direction IS 'act or compensate: what failed';
COMMENT ON COLUMN stacksaga.parked_sagas.since IS 'Since when it is parked';
COMMENT ON COLUMN stacksaga.parked_sagas.error IS 'The error that parked it';
COMMENT ON COLUMN stacksaga.parked_sagas.hint IS 'The SQL that continues it, and when to run it';
COMMENT ON COLUMN stacksaga.parked_sagas.parent_id IS 'The saga whose step it is, which waits for it; null: none';

COMMENT ON COLUMN stacksaga.effects.source IS 'The saga or the subscription';
COMMENT ON COLUMN stacksaga.effects.step IS 'The step or the handler';
COMMENT ON COLUMN stacksaga.effects.effect IS 'What was declared: compensable, guarded, idempotent or irreversible';
COMMENT ON COLUMN stacksaga.effects.rung IS 'What a repetition relies on: algebra, dedupe record or transaction';
COMMENT ON COLUMN stacksaga.effects.guarantee IS 'How far the promise goes';
COMMENT ON COLUMN stacksaga.effects.version IS 'The version of the definition; null: a subscription';
COMMENT ON COLUMN stacksaga.effects.domain IS 'Where the effect is applied: queue NAME, by the services that claim from it; topic NAME, by those that receive it; else the name of this database';
COMMENT ON COLUMN stacksaga.effects.placement IS 'Where the effect is: local, service, foreign or unlogged';

COMMENT ON COLUMN stacksaga.blocked_keys.subscription IS 'The name of the subscription';
COMMENT ON COLUMN stacksaga.blocked_keys.topic IS 'The topic of the message';
COMMENT ON COLUMN stacksaga.blocked_keys.key IS 'The key that is blocked';
COMMENT ON COLUMN stacksaga.blocked_keys.message_id IS 'The failed message that blocks it';
COMMENT ON COLUMN stacksaga.blocked_keys.blocked_since IS 'When that message first failed';
COMMENT ON COLUMN stacksaga.blocked_keys.attempts IS 'How often it has been given to a consumer';
COMMENT ON COLUMN stacksaga.blocked_keys.last_error IS 'Its last error';
COMMENT ON COLUMN stacksaga.blocked_keys.waiting IS 'How many later messages of the key wait';
COMMENT ON COLUMN stacksaga.blocked_keys.region IS 'The region of the ring';
COMMENT ON COLUMN stacksaga.blocked_keys.cluster IS 'The cluster of the ring';

COMMENT ON COLUMN stacksaga.dead_messages.subscription IS 'The name of the subscription';
COMMENT ON COLUMN stacksaga.dead_messages.topic IS 'The topic of the message';
COMMENT ON COLUMN stacksaga.dead_messages.key IS 'Its key';
COMMENT ON COLUMN stacksaga.dead_messages.message_id IS 'Its id';
COMMENT ON COLUMN stacksaga.dead_messages.dead_since IS 'Since when it has failed for good';
COMMENT ON COLUMN stacksaga.dead_messages.attempts IS 'How often it was given to a consumer';
COMMENT ON COLUMN stacksaga.dead_messages.last_error IS 'Its last error';
COMMENT ON COLUMN stacksaga.dead_messages.payload IS 'Its payload';
COMMENT ON COLUMN stacksaga.dead_messages.region IS 'The region of the ring';
COMMENT ON COLUMN stacksaga.dead_messages.cluster IS 'The cluster of the ring';

COMMENT ON COLUMN stacksaga.discarded_messages.subscription IS 'The name of the subscription';
COMMENT ON COLUMN stacksaga.discarded_messages.topic IS 'The topic of the message';
COMMENT ON COLUMN stacksaga.discarded_messages.key IS 'Its key';
COMMENT ON COLUMN stacksaga.discarded_messages.message_id IS 'Its id';
COMMENT ON COLUMN stacksaga.discarded_messages.dead_since IS 'Since when it had failed for good';
COMMENT ON COLUMN stacksaga.discarded_messages.attempts IS 'How often it was given to a consumer';
COMMENT ON COLUMN stacksaga.discarded_messages.last_error IS 'Its last error';
COMMENT ON COLUMN stacksaga.discarded_messages.discarded_at IS 'When it was discarded';
COMMENT ON COLUMN stacksaga.discarded_messages.discarded_by IS 'The role that discarded it';
COMMENT ON COLUMN stacksaga.discarded_messages.discard_reason IS 'The reason that the role gave';
COMMENT ON COLUMN stacksaga.discarded_messages.region IS 'The region of the ring';
COMMENT ON COLUMN stacksaga.discarded_messages.cluster IS 'The cluster of the ring';

COMMENT ON COLUMN stacksaga.message_retries.subscription IS 'The name of the subscription';
COMMENT ON COLUMN stacksaga.message_retries.topic IS 'The topic of the message';
COMMENT ON COLUMN stacksaga.message_retries.key IS 'Its key';
COMMENT ON COLUMN stacksaga.message_retries.message_id IS 'Its id';
COMMENT ON COLUMN stacksaga.message_retries.state IS 'Its state; message_transitions() lists them';
COMMENT ON COLUMN stacksaga.message_retries.attempt IS 'How often it was given to a consumer';
COMMENT ON COLUMN stacksaga.message_retries.due_at IS 'When it is due; null: behind another message of its key';
COMMENT ON COLUMN stacksaga.message_retries.failed_since IS 'When it failed first; null: it has not';
COMMENT ON COLUMN stacksaga.message_retries.last_error IS 'Its last error';
COMMENT ON COLUMN stacksaga.message_retries.region IS 'The region of the ring';
COMMENT ON COLUMN stacksaga.message_retries.cluster IS 'The cluster of the ring';

COMMENT ON COLUMN stacksaga.subscriptions.subscription IS 'The name of the subscription';
COMMENT ON COLUMN stacksaga.subscriptions.topic IS 'The topic that it reads';
COMMENT ON COLUMN stacksaga.subscriptions.handler IS 'The function that it calls; null: services receive its messages';
COMMENT ON COLUMN stacksaga.subscriptions.stop_on_first_failure IS
    'Whether a failed message holds later ones of its key';
COMMENT ON COLUMN stacksaga.subscriptions.lag_messages IS 'Messages that are published and neither handled nor dead';
COMMENT ON COLUMN stacksaga.subscriptions.lag_seconds IS 'The age of the oldest of them';
COMMENT ON COLUMN stacksaga.subscriptions.blocked_keys IS 'Keys that a failed message blocks';
COMMENT ON COLUMN stacksaga.subscriptions.dead_messages IS 'Messages that have failed for good';
COMMENT ON COLUMN stacksaga.subscriptions.region IS 'The region of the ring';
COMMENT ON COLUMN stacksaga.subscriptions.cluster IS 'The cluster of the ring';
COMMENT ON COLUMN stacksaga.subscriptions.partitions IS 'How many consumers it serves at once';
COMMENT ON COLUMN stacksaga.subscriptions.paused IS 'Whether nothing new of it is delivered';
COMMENT ON COLUMN stacksaga.subscriptions.paused_since IS 'Since when it is paused';
COMMENT ON COLUMN stacksaga.subscriptions.paused_until IS 'When the pause is over; null: when resume_subscription() ends it';
COMMENT ON COLUMN stacksaga.subscriptions.pause_reason IS 'The reason that pause_subscription() was given';
COMMENT ON COLUMN stacksaga.subscriptions.released_until IS
    'When the batch that was given back last may be delivered again; null: a batch was acknowledged since, or none was given back';
COMMENT ON COLUMN stacksaga.subscriptions.release_reason IS 'The reason that was given for it';

COMMENT ON COLUMN stacksaga.operator_actions.at IS 'When it was';
COMMENT ON COLUMN stacksaga.operator_actions.role_name IS 'The role that acted';
COMMENT ON COLUMN stacksaga.operator_actions.on_behalf_of IS
    'Whom the role acted for, by its own account: stacksaga.on_behalf_of of its session';
COMMENT ON COLUMN stacksaga.operator_actions.action IS 'What it did';
COMMENT ON COLUMN stacksaga.operator_actions.object IS 'What it was done to, such as a saga with its id';
COMMENT ON COLUMN stacksaga.operator_actions.reason IS 'The reason that it gave';
COMMENT ON COLUMN stacksaga.operator_actions.detail IS
    'What else is to be known, such as a version or a setting and its value';

COMMENT ON COLUMN stacksaga_internal.step_work.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga_internal.step_work.token IS 'The token of the saga';
COMMENT ON COLUMN stacksaga_internal.step_work.definition_id IS 'The version of its definition';
COMMENT ON COLUMN stacksaga_internal.step_work.step_no IS 'The number of the step';
COMMENT ON COLUMN stacksaga_internal.step_work.step IS 'The name of the step';
COMMENT ON COLUMN stacksaga_internal.step_work.attempt IS 'The attempt that is due or runs';
COMMENT ON COLUMN stacksaga_internal.step_work.due_at IS 'When it is due, or its lease runs out';
COMMENT ON COLUMN stacksaga_internal.step_work.paused_until IS 'When the next attempt is due, while that lies in the future';
COMMENT ON COLUMN stacksaga_internal.step_work.pause_reason IS 'SR429 while a retry waits for the retry budget';

COMMENT ON COLUMN stacksaga.saga_executions.id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.saga_executions.name IS 'The name of its definition';
COMMENT ON COLUMN stacksaga.saga_executions.status IS
    'PENDING, RUNNING, COMPENSATING, COMPLETED or FAILED; a parked saga is FAILED, a suspended one RUNNING or COMPENSATING by its direction';
COMMENT ON COLUMN stacksaga.saga_executions.context IS
    'The input with the outputs of its completed steps by their names; an input that is no object is its field input';
COMMENT ON COLUMN stacksaga.saga_executions.version IS 'Counts the answers to its steps from 1';
COMMENT ON COLUMN stacksaga.saga_executions.created_at IS 'When it was started';
COMMENT ON COLUMN stacksaga.saga_executions.updated_at IS 'When its row was last changed';
COMMENT ON COLUMN stacksaga.saga_executions.recovery_attempts IS 'How many of its attempts have failed';

COMMENT ON COLUMN stacksaga.saga_logs.id IS 'A number that the line keeps, made of what it is about; not in order';
COMMENT ON COLUMN stacksaga.saga_logs.saga_id IS 'The id of the saga';
COMMENT ON COLUMN stacksaga.saga_logs.step_name IS 'The step';
COMMENT ON COLUMN stacksaga.saga_logs.action IS 'act or compensate';
COMMENT ON COLUMN stacksaga.saga_logs.status IS 'STARTED, COMPLETED or FAILED';
COMMENT ON COLUMN stacksaga.saga_logs.details IS 'The error of an attempt that failed';
COMMENT ON COLUMN stacksaga.saga_logs.created_at IS 'When the attempt began or ended';
