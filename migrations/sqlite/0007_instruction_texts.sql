-- Texts can be long, so they are kept raw and apart from the rest of the instruction, which stays short:
-- `text` is the last column, which SQLite reads only if it is asked for. A table with a number of its
-- own keeps more of a long row in one page than one that is ordered by its key. `id` grows with each
-- instruction, so it is also the order within a home. `text` is NULL in rows of the older layout, whose
-- body has it.
CREATE TABLE instruction_by_id (
    id INTEGER PRIMARY KEY,
    home INTEGER NOT NULL,
    guid ANY NOT NULL,
    body TEXT NOT NULL,
    text TEXT
) STRICT;

INSERT INTO instruction_by_id (home, guid, body)
SELECT home, guid, body FROM instruction ORDER BY home, number;

DROP TABLE instruction;
ALTER TABLE instruction_by_id RENAME TO instruction;
CREATE INDEX instruction_home ON instruction (home);
