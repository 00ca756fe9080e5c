-- What becomes of a sandbox's pushes (free, trusted, waits, off), and why; and who published its work
-- although they waited.
ALTER TABLE checkout ADD COLUMN pushes TEXT NOT NULL DEFAULT 'free';
ALTER TABLE checkout ADD COLUMN pushes_why TEXT NOT NULL DEFAULT '';
ALTER TABLE checkout ADD COLUMN published_by TEXT;
