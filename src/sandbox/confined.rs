//! Confined access to the files of a directory: no path and no link leads out of it. A library for
//! providers: one that runs processes of its own uses it inside a sandbox, one that keeps workspaces
//! as directories uses it in the server.

pub mod directory;
pub mod files;
pub mod listing;
pub mod remove;
pub mod upload;

pub use directory::DirectoryFiles;
