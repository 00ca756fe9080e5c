-- The outbox: what is to be done outside of the issues' states. A row is recorded in the transaction
-- of the state that asked for it, and removed when it is done. `key` says what it is about: a newer
-- one of the same home and kind replaces it, with a higher `revision`. `error` is for people.
CREATE TABLE effect (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    home INTEGER NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    error TEXT,
    body TEXT NOT NULL,
    UNIQUE (home, kind, key)
) STRICT;

CREATE INDEX effect_due ON effect (due_at, id);
