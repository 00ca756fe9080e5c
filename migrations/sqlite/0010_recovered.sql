-- Whether a delivery did not arrive and was read from GitHub instead.
ALTER TABLE delivery ADD COLUMN recovered INTEGER NOT NULL DEFAULT 0;
