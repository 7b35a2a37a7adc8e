-- What both servers write: one row is one charge. The extension must be in the database.
CREATE TABLE charge (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account text NOT NULL,
    amount  numeric NOT NULL CHECK (amount > 0)
);
