-- What is said on issues. A row is recorded in the transaction of the state that asked for it, and is
-- kept when it is done: a reaction and a reply are made once for each key, the status comment of a home
-- is one row. `revision` counts how often the status was asked for. `due_at` is when the worker has
-- something to do; NULL when it waits for something else, or for nothing. `begun_at` is when the latest
-- call that writes a comment began, `first_begun_at` the first one whose outcome is unknown.
CREATE TABLE github_effect (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    home INTEGER NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL,
    body TEXT NOT NULL,
    state TEXT NOT NULL,
    due_at INTEGER,
    tries INTEGER NOT NULL,
    failing_since INTEGER,
    begun_at INTEGER,
    first_begun_at INTEGER,
    reason TEXT,
    released_by TEXT,
    comment INTEGER,
    author INTEGER,
    shown_hash TEXT,
    shown_phase TEXT,
    shown_at INTEGER,
    UNIQUE (home, kind, key)
) STRICT;

CREATE INDEX github_effect_due ON github_effect (due_at) WHERE due_at IS NOT NULL;

-- The pace of each identity that writes: until when it rests, and what it wrote within the hour.
CREATE TABLE github_pace (
    writer TEXT PRIMARY KEY,
    rests_until INTEGER,
    strikes INTEGER NOT NULL,
    writes TEXT NOT NULL
) STRICT, WITHOUT ROWID;
