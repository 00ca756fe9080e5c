//! Confined access to the files of a directory: no path and no link leads out of it. A library for
//! providers. One that runs processes uses it inside a sandbox; one that keeps workspaces as
//! directories uses [`DirectoryFiles`] in the server.

pub mod archive_form;
pub mod archive_reader;
mod directory;
mod failure;
pub mod files;
pub mod listing;
pub mod remove;
pub mod transfer;
pub mod upload;

pub use directory::{DirectoryFiles, note_left_out};
pub use failure::{
    MESSAGE_LEN_MAX, RequestFailure, WorkFailure, broken, explain, quoted, shortened,
};
pub use transfer::pipe;
