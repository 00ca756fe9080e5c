//! Which requests the gateway serves: those of git's smart HTTP protocol and of Git LFS.

use hyper::{Method, Uri};

use crate::types::Repository;

/// A service of git's smart HTTP protocol (`gitprotocol-http(5)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitService {
    /// Fetch and clone.
    UploadPack,
    /// Push.
    ReceivePack,
}

impl GitService {
    /// Its name in paths.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UploadPack => "git-upload-pack",
            Self::ReceivePack => "git-receive-pack",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::UploadPack, Self::ReceivePack].into_iter().find(|one| one.as_str() == text)
    }
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GitRoute {
    /// `GET /O/R/info/refs?service=…`: the refs, before a fetch or push.
    Refs(Repository, GitService),
    /// `POST /O/R/git-upload-pack` or `git-receive-pack`.
    Exchange(Repository, GitService),
    /// `POST /O/R/info/lfs/objects/batch`: where objects of Git LFS are.
    LfsBatch(Repository),
    /// `GET`, `PUT` or `POST /.lfs/TICKET`: an object of Git LFS, or the check of an upload.
    LfsObject(String),
}

/// Where LFS objects are, by ticket.
pub const LFS_PREFIX: &str = "/.lfs/";

impl GitRoute {
    /// Reads a request's method and address; `None` for what the gateway does not serve.
    pub fn parse(method: &Method, uri: &Uri) -> Option<Self> {
        let path = uri.path();
        if let Some(ticket) = path.strip_prefix(LFS_PREFIX) {
            let is_one = !ticket.is_empty() && ticket.bytes().all(|b| b.is_ascii_hexdigit());
            let is_served = [Method::GET, Method::PUT, Method::POST].contains(method);
            return (is_one && is_served).then(|| Self::LfsObject(ticket.to_owned()));
        }
        let mut parts = path.strip_prefix('/')?.splitn(3, '/');
        let (owner, name, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let name = name.strip_suffix(".git").unwrap_or(name);
        let repository = Repository::parse(&format!("{owner}/{name}")).ok()?;
        if rest == "info/lfs/objects/batch" {
            return (*method == Method::POST).then_some(Self::LfsBatch(repository));
        }
        if rest == "info/refs" {
            let service = GitService::parse(uri.query()?.strip_prefix("service=")?)?;
            return (*method == Method::GET).then_some(Self::Refs(repository, service));
        }
        let service = GitService::parse(rest)?;
        (*method == Method::POST).then_some(Self::Exchange(repository, service))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: Method, uri: &str) -> Option<GitRoute> {
        GitRoute::parse(&method, &uri.parse().expect("an address"))
    }

    #[test]
    fn git_s_own_requests_are_served_and_nothing_else() {
        let repository = || Repository::parse("pear-garden/orchard").expect("a name");
        let refs = "/pear-garden/orchard.git/info/refs?service=git-upload-pack";
        let expected = GitRoute::Refs(repository(), GitService::UploadPack);
        assert_eq!(route(Method::GET, refs), Some(expected));
        let push = "/pear-garden/orchard/git-receive-pack";
        let expected = GitRoute::Exchange(repository(), GitService::ReceivePack);
        assert_eq!(route(Method::POST, push), Some(expected));
        let batch = "/pear-garden/orchard.git/info/lfs/objects/batch";
        assert_eq!(route(Method::POST, batch), Some(GitRoute::LfsBatch(repository())));
        assert_eq!(route(Method::PUT, "/.lfs/0af"), Some(GitRoute::LfsObject("0af".into())));
        for (method, uri) in [
            (Method::POST, refs),
            (Method::GET, push),
            (Method::GET, "/pear-garden/orchard.git/info/refs"),
            (Method::GET, "/pear-garden/orchard.git/info/refs?service=git-upload-archive"),
            (Method::GET, "/pear-garden/orchard.git/HEAD"),
            (Method::GET, "/pear-garden/orchard.git/objects/info/packs"),
            (Method::POST, "/pear-garden/orchard.git/info/lfs/locks/verify"),
            (Method::POST, "/pear-garden/../orchard/git-receive-pack"),
            (Method::POST, "/pear-garden/orchard/x/git-receive-pack"),
            (Method::GET, "/.lfs/"),
            (Method::GET, "/.lfs/../x"),
            (Method::GET, "/"),
        ] {
            assert_eq!(route(method.clone(), uri), None, "{method} {uri}");
        }
    }
}
