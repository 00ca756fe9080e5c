//! Where files are listed and read: in the sandbox, or in a version in the object storage.

use crate::http::Shared;
use crate::http::api::sandboxes::load;
use crate::http::api::syncs::{parse_version, synced_tree};
use crate::http::caller::Caller;
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::http::shared::sandbox_ref;
use crate::sync::SyncedTree;
use crate::types::{Sandbox, SyncVersion};

/// Where files are.
pub enum FileSource {
    /// In the running sandbox.
    Sandbox,
    /// In a version, or in the newest one.
    Synced(Option<SyncVersion>),
}

impl FileSource {
    /// Reads `source` and `version` of a query.
    ///
    /// # Errors
    /// 400 for other words.
    pub fn read(query: &mut Query) -> Result<Self, ApiError> {
        let version = query.text("version")?.as_deref().map(parse_version).transpose()?;
        match (query.text("source")?.as_deref(), version) {
            (None | Some("sandbox"), None) => Ok(Self::Sandbox),
            (None | Some("sandbox"), Some(_)) => {
                Err(ApiError::field("version", "goes with source=synced"))
            }
            (Some("synced"), version) => Ok(Self::Synced(version)),
            (Some(_), _) => Err(ApiError::field("source", "must be sandbox or synced")),
        }
    }
}

/// What a version of a sandbox has.
///
/// # Errors
/// [`ApiError`].
pub async fn synced(
    shared: &Shared,
    caller: &Caller,
    id: &str,
    version: Option<SyncVersion>,
) -> Result<(SyncedTree, Sandbox), ApiError> {
    let sandbox = load(shared, &caller.account, &sandbox_ref(id)).await?;
    Ok((synced_tree(shared, &sandbox, version).await?, sandbox))
}
