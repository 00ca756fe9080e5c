//! The binary: parse, dispatch.

fn main() {}
