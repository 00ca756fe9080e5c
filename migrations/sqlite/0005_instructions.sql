-- What people asked for in words, one row for each trigger that was applied, in commit order. `home`
-- follows the issue when two homes turn out to be one issue. `guid` is the delivery's, in the form
-- that `delivery.guid` has; the delivery itself may have been pruned.
CREATE TABLE instruction (
    id INTEGER PRIMARY KEY,
    home INTEGER NOT NULL,
    guid ANY NOT NULL,
    body TEXT NOT NULL
) STRICT;

CREATE INDEX instruction_home ON instruction (home);
