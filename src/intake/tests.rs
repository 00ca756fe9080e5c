//! Recovery against the in-memory GitHub, with the store and the engine of a server.

mod checks;
mod crowd;
mod log;
mod loops;
mod on_pull;
mod ties;
mod token;
mod world;
