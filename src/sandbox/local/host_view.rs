//! The host's files that sandboxes see, and whether those changed.

use std::ffi::OsString;
use std::fs::{read_dir, symlink_metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::sandbox::GivenProgram;

/// The host's program directories. Links among them (`/bin` → `usr/bin`) are recreated as links.
pub const PROGRAMS: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// The parts of the host's `/etc` that programs need, none of them secret: the linker's cache,
/// certificates, `/etc/alternatives`, protocol numbers, the time zone, and Debian's settings of
/// language runtimes.
pub const SETTINGS: [&str; 17] = [
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ca-certificates",
    "pki/tls/certs",
    "pki/ca-trust/extracted",
    "crypto-policies",
    "alternatives",
    "protocols",
    "services",
    "mime.types",
    "localtime",
    "timezone",
    "os-release",
    "terminfo",
];

/// Directories in the host's `/etc` with these prefixes are settings of language runtimes.
pub const RUNTIME_SETTINGS: [&str; 3] = ["java-", "python3", "perl"];

/// The mounts below the host's program directories.
fn mounts_below_programs() -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let is_below = |line: &&str| {
        let at = line.split(' ').nth(4).unwrap_or_default().trim_start_matches('/');
        PROGRAMS.iter().any(|program| at.split('/').next() == Some(program))
    };
    mounts.lines().filter(is_below).map(str::to_owned).collect()
}

/// The host's files at one moment. A sandbox keeps each single file as it was at its start, even
/// if the host replaces it. Directories stay current.
#[derive(Debug, PartialEq, Eq)]
pub struct HostView {
    versions: Vec<Option<FileVersion>>,
    runtimes: Vec<OsString>,
    mounts: Vec<String>,
    /// The programs that sandboxes are given.
    given: Vec<Option<FileVersion>>,
}

/// Device, inode and last change of a file; a directory's last change is left out.
type FileVersion = (u64, u64, Option<(i64, i64)>);

fn version_of(path: &Path) -> Option<FileVersion> {
    let at = symlink_metadata(path).ok()?;
    let change = (!at.is_dir()).then(|| (at.ctime(), at.ctime_nsec()));
    Some((at.dev(), at.ino(), change))
}

impl HostView {
    /// Reads the current view, with these programs that sandboxes are given: some thirty cached `stat`
    /// calls, and two lists.
    pub fn now(given: &[GivenProgram]) -> Self {
        let given = given.iter().map(|program| version_of(program.file())).collect();
        Self { mounts: mounts_below_programs(), given, ..Self::below(Path::new("/")) }
    }

    fn below(root: &Path) -> Self {
        let look = |path: &Path| version_of(&root.join(path));
        let programs = PROGRAMS.iter().map(|path| look(Path::new(path)));
        let settings = SETTINGS.iter().map(|name| look(&Path::new("etc").join(name)));
        let is_runtime = |name: &OsString| {
            RUNTIME_SETTINGS
                .iter()
                .any(|start| name.as_encoded_bytes().starts_with(start.as_bytes()))
        };
        let etc = read_dir(root.join("etc")).into_iter().flatten().flatten();
        let mut runtimes: Vec<_> = etc.map(|entry| entry.file_name()).filter(is_runtime).collect();
        runtimes.sort_unstable();
        let versions = programs.chain(settings).collect();
        Self { versions, runtimes, mounts: Vec::new(), given: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_replaced_file_is_a_change_and_one_more_in_a_directory_is_not() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |path: &str| root.path().join(path);
        let seen = || HostView::below(root.path());
        fs::create_dir_all(at("etc/ssl/certs")).expect("made");
        fs::write(at("etc/localtime"), "noon").expect("written");
        let before = seen();
        fs::write(at("etc/ssl/certs/one.pem"), "one more").expect("written");
        assert_eq!(seen(), before);
        fs::write(at("etc/new"), "noon").expect("written");
        fs::rename(at("etc/new"), at("etc/localtime")).expect("replaced");
        let after = seen();
        assert_ne!(after, before);
        fs::create_dir(at("usr")).expect("made");
        let with_programs = seen();
        assert_ne!(with_programs, after);
        fs::create_dir(at("etc/java-21-openjdk")).expect("made");
        assert_ne!(seen(), with_programs, "a language runtime's settings");
    }
}
