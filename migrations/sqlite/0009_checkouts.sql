-- The checkout of each live sandbox: which repository it has, on which branch, and what is known of
-- that branch's commits. Commits are object ids in hexadecimal.
CREATE TABLE checkout (
    sandbox TEXT PRIMARY KEY,
    home INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    changed_at INTEGER NOT NULL,
    -- The repository as it was called when it was checked out: git inside goes on to use this name.
    remote TEXT NOT NULL,
    base TEXT,
    branch TEXT,
    -- The last commit that was pushed from here.
    tip TEXT,
    -- A commit that is being pushed: whether GitHub has it is not known yet.
    pushing TEXT,
    -- A commit of others on the branch that a refusal named, and whether it was fetched since.
    foreign_tip TEXT,
    foreign_is_fetched INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX checkout_home ON checkout (home);
