//! What can be wrong with a configuration, told so that a person can put it right.

use std::fmt;
use std::path::PathBuf;

use super::source::Origin;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// In which line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// Keys or values are wrong: all of them, in the order of their keys.
    #[error("{}", Lines(.0))]
    Wrong(Vec<Problem>),
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it was read; `None` where a default cannot be found out.
    pub origin: Option<Origin>,
    /// What is wrong, naming the key.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) => write!(f, "{origin}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

struct Lines<'a>(&'a [Problem]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}
