-- The subscription of this example; the extension must be in the database. While the broker is away attempts go on for about
-- a day: 300, of which all but the first few are five minutes apart.
SELECT stacksaga.create_subscription('to-rabbit', 'order.*', retry => stacksaga.retry_policy(max_attempts => 300));
