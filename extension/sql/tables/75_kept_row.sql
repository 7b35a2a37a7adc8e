CREATE TABLE stacksaga.kept_row (
    relation text        NOT NULL,
    row_key  text        NOT NULL,
    error    text        NOT NULL,
    since    timestamptz NOT NULL,
    retry_at timestamptz NOT NULL,
    PRIMARY KEY (relation, row_key)
);
COMMENT ON TABLE stacksaga.kept_row IS
    'Runtime: rows whose retention is over and that could not be removed, until a later attempt';
COMMENT ON COLUMN stacksaga.kept_row.relation IS 'The table of the row, without its schema';
COMMENT ON COLUMN stacksaga.kept_row.row_key IS 'What the row is known by';
COMMENT ON COLUMN stacksaga.kept_row.error IS 'Why it could not be removed';
COMMENT ON COLUMN stacksaga.kept_row.since IS 'When that was noticed first';
COMMENT ON COLUMN stacksaga.kept_row.retry_at IS 'When it is tried again';
