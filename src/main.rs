//! The `issuebox` program.

fn main() {}
