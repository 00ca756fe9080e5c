//! Lists of whole trees of files in pages, flat or nested, of a sandbox or a stored version.

use actix_web::HttpResponse;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::sync::Semaphore;

use super::source::{self, FileSource};
use super::{FileBody, FileList, ListQuery};
use crate::http::Shared;
use crate::http::api::exec::work_to_read;
use crate::http::caller::Caller;
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::http::wire::Success;
use crate::sandbox::{Capability, FileEntry, TreePage, TreePageAsk, WorkError};
use crate::store::StoreError;
use crate::types::Sandbox;

/// Most entries of one page, and how many one has if nothing is said.
const LIMIT_MAX: u64 = 10_000;
const LIMIT_DEFAULT: u64 = 1_000;

/// Deepest list of a provider that cannot walk a workspace.
const DEPTH_MAX: u32 = 32;

/// Walks of workspaces for lists that are in memory at once, in this process.
static WALKS: Semaphore = Semaphore::const_new(2);

/// How a page is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PageFormat {
    /// One entry after the other.
    List,
    /// Entries below their directories.
    Tree,
}

/// Which page of a tree is asked for, and how it is shown.
pub struct FilesPageAsk {
    format: PageFormat,
    after: Option<Vec<u8>>,
    limit: usize,
}

impl FilesPageAsk {
    /// Reads `format`, `limit` and `cursor` of a query; `None` without a format.
    ///
    /// # Errors
    /// 400 for other words.
    pub fn read(query: &mut Query) -> Result<Option<Self>, ApiError> {
        let (limit, cursor) = (query.number("limit", 1..=LIMIT_MAX)?, query.text("cursor")?);
        let format = match query.text("format")?.as_deref() {
            Some("list") => PageFormat::List,
            Some("tree") => PageFormat::Tree,
            Some(_) => return Err(ApiError::field("format", "must be list or tree")),
            None if limit.is_some() => return Err(ApiError::field("limit", "goes with format")),
            None if cursor.is_some() => return Err(ApiError::field("cursor", "goes with format")),
            None => return Ok(None),
        };
        let after = match cursor {
            None => None,
            Some(cursor) => {
                let path = URL_SAFE_NO_PAD.decode(cursor).ok().filter(|path| !path.is_empty());
                Some(path.ok_or(StoreError::BadCursor)?)
            }
        };
        let limit = usize::try_from(limit.unwrap_or(LIMIT_DEFAULT)).expect("at most 10,000");
        Ok(Some(Self { format, after, limit }))
    }
}

/// Answers with a page.
///
/// # Errors
/// [`ApiError`].
pub async fn answer(
    shared: &Shared,
    caller: &Caller,
    id: &str,
    ask: FilesPageAsk,
    query: ListQuery,
) -> Result<HttpResponse, ApiError> {
    let ListQuery { source, depth, path, at_most } = query;
    let page = TreePageAsk { under: &path, depth, after: ask.after.as_deref(), limit: ask.limit };
    let (found, is_cut, sandbox): (TreePage, bool, Sandbox) = match source {
        FileSource::Synced(version) => {
            let (tree, sandbox) = source::synced(shared, caller, id, version).await?;
            (tree.page(page)?, false, sandbox)
        }
        FileSource::Sandbox => {
            let work = work_to_read(shared, caller, id, at_most).await?;
            let workspace = &work.provider.workspace;
            if work.provider.descriptor.offers(Capability::Archives) {
                let _walk = WALKS.acquire().await.expect("it is never closed");
                let tree = workspace.walk(work.target).await?;
                (TreePage::of(&tree.entries, &tree.left_out, page)?, false, work.sandbox)
            } else {
                let depth = depth.unwrap_or(DEPTH_MAX);
                let listed = workspace.list_files(work.target, path.clone(), depth).await?;
                (listed_page(&listed.entries, page)?, listed.truncated, work.sandbox)
            }
        }
    };
    let next_cursor = found.entries.last().filter(|_| found.has_more);
    let next_cursor = next_cursor.map(|last| URL_SAFE_NO_PAD.encode(&last.path));
    let truncated = next_cursor.is_some() || is_cut;
    let entries = match ask.format {
        PageFormat::List => found.entries.into_iter().map(FileBody::from).collect(),
        PageFormat::Tree => nested(found.above.into_iter().chain(found.entries)),
    };
    let list = FileList { entries, truncated, next_cursor };
    Ok(HttpResponse::Ok().json(Success::about(&sandbox, list)))
}

/// A page of what a provider listed below a directory, without the directory itself.
fn listed_page(entries: &[FileEntry], ask: TreePageAsk<'_>) -> Result<TreePage, WorkError> {
    let root = crate::sandbox::WorkspacePath::parse(b"").expect("the workspace itself");
    // The provider listed what is asked for, and checked that it is there.
    TreePage::of(entries, &[], TreePageAsk { under: &root, depth: None, ..ask })
}

/// Puts entries below their directories, which come before them.
fn nested(entries: impl Iterator<Item = FileEntry>) -> Vec<FileBody> {
    let mut top = Vec::new();
    // The directories above the next entry, with their paths.
    let mut open: Vec<(Vec<u8>, FileBody)> = Vec::new();
    let close = |open: &mut Vec<(Vec<u8>, FileBody)>, top: &mut Vec<FileBody>| {
        if let Some((_, body)) = open.pop() {
            let siblings = open.last_mut().and_then(|(_, parent)| parent.children.as_mut());
            siblings.unwrap_or(top).push(body);
        }
    };
    for entry in entries {
        let is_below = |directory: &[u8]| {
            entry.path.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/"))
        };
        while open.last().is_some_and(|(path, _)| !is_below(path)) {
            close(&mut open, &mut top);
        }
        let (path, is_directory) =
            (entry.path.clone(), entry.kind == crate::sandbox::FileKind::Directory);
        let mut body = FileBody::from(entry);
        body.children = is_directory.then(Vec::new);
        open.push((path, body));
    }
    while !open.is_empty() {
        close(&mut open, &mut top);
    }
    top
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::FileKind;
    use crate::types::Timestamp;

    #[test]
    fn entries_are_nested_below_their_directories() {
        let entry = |path: &str, kind| FileEntry {
            path: path.into(),
            kind,
            size: 0,
            mode: 0o755,
            modified_at: Timestamp::from_unix_ms(0),
            is_unreadable: false,
        };
        let all = [
            entry("a", FileKind::Directory),
            entry("a/b", FileKind::Directory),
            entry("a/b/f", FileKind::File),
            entry("a/g", FileKind::File),
            entry("ab", FileKind::Link),
            entry("c", FileKind::Directory),
        ];
        fn shape(all: &[FileBody]) -> String {
            let one = |body: &FileBody| {
                let children =
                    body.children.as_ref().map(|children| format!("({})", shape(children)));
                format!("{}{}", body.name.as_deref().expect("text"), children.unwrap_or_default())
            };
            all.iter().map(one).collect::<Vec<_>>().join(" ")
        }
        assert_eq!(shape(&nested(all.into_iter())), "a(b(f) g) ab c()");
    }
}
