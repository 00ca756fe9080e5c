//! Recovery against the in-memory GitHub, with the store and the engine of a server.

mod checks;
mod log;
mod loops;
mod token;
mod world;
