-- What was said to the agents of issues. The text of a message that came by a delivery is kept with that
-- delivery's instruction; any other is here.
CREATE TABLE message (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    home INTEGER NOT NULL,
    run BLOB NOT NULL,
    source TEXT NOT NULL,
    author TEXT NOT NULL,
    at INTEGER NOT NULL,
    guid BLOB,
    text TEXT
);
CREATE INDEX message_by_home ON message (home, number);
CREATE INDEX message_by_run ON message (run, number);

-- The runs of agents. The run in progress, the next one and the last one are in their issue's body, too,
-- which decides; a row follows in the same transaction.
CREATE TABLE run (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    home INTEGER NOT NULL,
    state TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX run_by_home ON run (home, number);
CREATE INDEX run_by_state ON run (state, number);
