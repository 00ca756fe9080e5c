//! The command line, tested by running the program: against a stub of the API, against a server
//! of the test's own, and against the whole program under `serve`.

#[path = "../common/agent.rs"]
mod agent;
mod backup;
mod chat;
#[path = "../common/mod.rs"]
mod common;
mod copies;
mod doctor;
mod drift;
mod events;
mod exec;
mod files;
mod hints;
mod hostile;
mod local;
mod operator;
mod piped;
#[path = "../common/process.rs"]
mod process;
#[path = "../common/pty.rs"]
mod pty;
mod serve;
mod stand_in;
#[path = "../common/stub.rs"]
mod stub;
mod terminal;
mod top;
mod verbs;
