-- What people asked for in words, one row for each trigger that was applied. `number` counts within a
-- home. One tree alone, since each new issue writes into it. `guid` is the delivery's, in the form
-- that `delivery.guid` has; the delivery itself may have been pruned.
CREATE TABLE instruction (
    home INTEGER NOT NULL,
    number INTEGER NOT NULL,
    guid ANY NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (home, number)
) STRICT, WITHOUT ROWID;
