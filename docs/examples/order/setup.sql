-- What an administrator does once: databases, roles, the extension and its grants. Run by a superuser, in any database.
CREATE ROLE shop LOGIN;
CREATE ROLE payments LOGIN;
CREATE ROLE shipping LOGIN;
CREATE ROLE mails LOGIN;
CREATE ROLE oncall LOGIN;                  -- the coordinator, with its page
CREATE DATABASE shop OWNER shop;
CREATE DATABASE bank OWNER payments;       -- the payment service's own
CREATE DATABASE depot OWNER shipping;      -- the shipping service's own

\c shop
CREATE EXTENSION stacksaga;
SELECT stacksaga.grant_usage('shop', 'operator'), stacksaga.grant_usage('shop', 'service'),
       stacksaga.grant_usage('payments', 'service'), stacksaga.grant_usage('shipping', 'service'),
       stacksaga.grant_usage('mails', 'service'), stacksaga.grant_usage('oncall', 'coordinator'),
       stacksaga.grant_usage('oncall', 'monitor');
SELECT stacksaga.worker_ensure();          -- it runs the SQL steps; see "Run the worker" in README.md for preloading

\c shop shop
\ir shop.sql
\c bank payments
CREATE TABLE charge (key text PRIMARY KEY, customer text, amount numeric NOT NULL, refunded boolean NOT NULL);
\c depot shipping
CREATE TABLE parcel (key text PRIMARY KEY, address text, recalled boolean NOT NULL);
