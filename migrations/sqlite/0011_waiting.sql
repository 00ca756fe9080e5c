-- Deliveries that are not taken in yet because GitHub is asked first what their sender may do. Times are
-- Unix milliseconds.
CREATE TABLE waiting_delivery (
    id INTEGER PRIMARY KEY,
    -- As in the table delivery: 16 bytes, or a text.
    guid ANY NOT NULL UNIQUE,
    event TEXT NOT NULL,
    -- The verified payload, as JSON.
    body BLOB NOT NULL,
    received_at INTEGER NOT NULL,
    -- 1 if it was read from GitHub's delivery log.
    recovered INTEGER NOT NULL,
    -- When GitHub is asked next.
    due_at INTEGER NOT NULL,
    -- How many times GitHub did not answer, and why.
    tries INTEGER NOT NULL,
    reason TEXT
) STRICT;

CREATE INDEX waiting_delivery_due ON waiting_delivery (due_at);
