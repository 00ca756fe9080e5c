//! Why a sync did not happen.

use super::manifest::{ContentChecksum, ManifestError};
use crate::sandbox::WorkError;
use crate::types::SyncVersion;

/// Why a sync did not happen.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The sandbox did not do its part.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The object storage did not do its part.
    #[error("the object storage failed: {0}")]
    Storage(String),
    /// The sandbox has no whole version of this name.
    #[error("the sandbox has no version {0}")]
    NoSuchVersion(SyncVersion),
    /// The sandbox has no whole version at all.
    #[error("the sandbox has no version: nothing was pushed yet")]
    NoVersion,
    /// A version's manifest cannot be used.
    #[error("version {version} cannot be used: {error}")]
    Damaged {
        /// The version.
        version: SyncVersion,
        /// Why.
        error: ManifestError,
    },
    /// A content that a version has is not in the object storage.
    #[error("the content {0} is missing in the object storage")]
    ContentMissing(ContentChecksum),
    /// A content is not the one that it was stored as.
    #[error("the content {0} is damaged in the object storage")]
    ContentDamaged(ContentChecksum),
    /// The result could not be recorded.
    #[error("the sync was not recorded: {0}")]
    NotRecorded(String),
    /// The server is shutting down.
    #[error("the sync was ended: the server is shutting down")]
    Ended,
}

impl From<object_store::Error> for SyncError {
    fn from(error: object_store::Error) -> Self {
        Self::Storage(error.to_string())
    }
}
