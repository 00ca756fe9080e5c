//! The dashboard's own files, compiled in. Their names contain a hash of their content, so browsers
//! can cache them without a limit.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};

/// One file.
pub struct Asset {
    /// Its name under `/assets/`.
    pub name: String,
    /// Its media type.
    pub content_type: &'static str,
    /// Its content.
    pub content: &'static str,
}

/// Colours, shapes and layout.
pub static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("style", "css", "text/css; charset=utf-8", include_str!("style.css"))
});
/// The script that keeps pages current.
pub static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("live", "js", "text/javascript; charset=utf-8", include_str!("live.js"))
});
/// The icon.
pub static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("icon.svg")));

impl Asset {
    fn new(stem: &str, suffix: &str, content_type: &'static str, content: &'static str) -> Self {
        let hash = hex::encode(&Sha256::digest(content)[..6]);
        Self { name: format!("{stem}-{hash}.{suffix}"), content_type, content }
    }

    /// Its path.
    pub fn url(&self) -> String {
        format!("/assets/{}", self.name)
    }
}

/// The file of this name.
pub fn find(name: &str) -> Option<&'static Asset> {
    [&STYLE, &SCRIPT, &ICON].into_iter().map(|asset| &**asset).find(|asset| asset.name == name)
}
