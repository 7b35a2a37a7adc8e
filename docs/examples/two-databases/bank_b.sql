-- The database of bank B, on a server of its own. It runs no saga: it only remembers what it has done.
CREATE TABLE account (id integer PRIMARY KEY, balance numeric NOT NULL);
CREATE TABLE entry (idempotency_key text NOT NULL, account integer NOT NULL, amount numeric NOT NULL);
