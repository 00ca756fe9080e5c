//! The doctor's checks on the server's machine: whether a server could start here and work. A check
//! changes nothing, and removes what it creates.

mod agents;
mod descriptors;
mod github;

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Access, access, statvfs};

use crate::clock::{Clock, SystemClock};
use crate::config::{Config, Secrets, ServerAddress, StoredApp};
use crate::store::sqlite::SqliteStore;
use crate::types::{NetworkKind, Secret, Template, Timestamp};

use super::exposure;
use super::providers;

pub use crate::types::{Check, CheckState};
pub use agents::look_at_agents;
pub use github::look_at_github;

/// Less free space than this is noted.
const ROOM_LOW: u64 = 1 << 30;
/// With less free space than this a server cannot work: its log alone grows to half of that.
const ROOM_NONE: u64 = 64 << 20;
/// Largest accepted difference between two clocks.
pub const CLOCK_SLACK: Duration = Duration::from_secs(60);
/// A clock that shows an earlier time is wrong: 2026 in UTC.
const EPOCH_OF_SANITY_MS: i64 = 1_767_225_600_000;

/// Whether a server runs on this data directory.
pub fn is_running(config: &Config) -> bool {
    SqliteStore::is_in_use(&config.server.data).unwrap_or(false)
}

/// All checks that need no running server. Providers are tried only if no server runs; a running one
/// reports on them itself.
pub fn look(config: &Config) -> Vec<Check> {
    let data = &config.server.data;
    let is_running = is_running(config);
    let mut checks = vec![data_directory(data), port(config, is_running), descriptors::check()];
    checks.extend(
        exposure::plain_http(config)
            .map(|found| Check::noted("network", found, "docs/proxy.md shows how")),
    );
    let (store, newest_at) = store(data);
    checks.push(store);
    checks.push(secret(
        "admin token",
        config.auth.admin_token.is_some(),
        &data.join(Secrets::ADMIN_TOKEN_FILE),
    ));
    checks.push(webhook_secret(config));
    checks.extend(stored_app(config));
    checks.push(clock(SystemClock.now(), newest_at));
    checks.extend(host_networks(config));
    if !is_running {
        checks.extend(providers::check(config));
    }
    checks
}

fn data_directory(dir: &Path) -> Check {
    let what = "data directory";
    let shown = dir.display();
    let metadata = match dir.metadata() {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => {
            let remedy = "name a directory with --data, ISSUEBOX_DATA or `data`";
            return Check::broken(what, format!("{shown} is not a directory"), remedy);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return missing(what, dir),
        Err(error) => {
            let found = format!("cannot read {shown}: {error}");
            return Check::broken(what, found, "run this as the server's user");
        }
    };
    if let Err(error) = try_to_write(dir) {
        let user = rustix::process::geteuid().as_raw();
        let found = format!("user {user} cannot write to {shown}: {error}");
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => format!(
                "run this as the server's user; if that is {user}, give it the directory: \
                 chown -R {user} {shown}"
            ),
            io::ErrorKind::ReadOnlyFilesystem => {
                "mount it writable, or use another directory with --data".to_owned()
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free disk space".to_owned()
            }
            // All other kinds have the same remedy.
            _ => "use another directory with --data".to_owned(),
        };
        return Check::broken(what, found, remedy);
    }
    let room = match room(dir) {
        Ok(room) => room,
        Err(error) => {
            let found = format!("cannot read the free space of {shown}: {error}");
            return Check::noted(what, found, "check with df");
        }
    };
    let found = format!("{shown}, writable, {} free", sized(room));
    if let Some(check) = exposed(what, dir, &metadata) {
        return check;
    }
    match room {
        0..ROOM_NONE => Check::broken(what, found, "free disk space, or use another directory"),
        ROOM_NONE..ROOM_LOW => Check::noted(what, found, "free disk space soon"),
        _ if rustix::process::geteuid().is_root() && metadata.uid() != 0 => Check::noted(
            what,
            format!("{found}; it belongs to user {} but this runs as root", metadata.uid()),
            "run this as that user to see what the server can do",
        ),
        _ => Check::right(what, found),
    }
}

/// What a start refuses or warns of.
fn exposed(what: &str, path: &Path, metadata: &Metadata) -> Option<Check> {
    let found = exposure::of_path(path, metadata)?;
    Some(match found.is_decided_by_others {
        true => Check::broken(what, found.found, found.remedy),
        false => Check::noted(what, found.found, found.remedy),
    })
}

fn missing(what: &str, dir: &Path) -> Check {
    let found = format!("{} does not exist", dir.display());
    let parent = dir.ancestors().skip(1).find(|parent| parent.exists()).unwrap_or(Path::new("/"));
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let other = "to use another one, set --data, ISSUEBOX_DATA or `data`";
    let remedy = match access(parent, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => {
            let found = format!("{} will be created by the first `issuebox serve`", dir.display());
            return Check::right(what, found);
        }
        Err(rustix::io::Errno::ROFS) => {
            format!("{} is mounted read-only: mount it writable; {other}", parent.display())
        }
        Err(_) => format!(
            "this user cannot create it in {}: run install -d -m 0700 -o USER {}; {other}",
            parent.display(),
            dir.display()
        ),
    };
    Check::broken(what, found, remedy)
}

/// Writes a file and removes it.
fn try_to_write(dir: &Path) -> io::Result<()> {
    let path = dir.join(format!(".doctor-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let written = file.write_all(b"issuebox doctor\n").and_then(|()| file.sync_all());
    std::fs::remove_file(&path)?;
    written
}

fn room(dir: &Path) -> io::Result<u64> {
    let stat = statvfs(dir)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn sized(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        mib @ 1..10_240 => format!("{mib} MiB"),
        mib => format!("{} GiB", mib >> 10),
    }
}

fn port(config: &Config, is_running: bool) -> Check {
    let what = "port";
    if is_running {
        return match config.server.address() {
            Ok(ServerAddress::Current(address)) => {
                Check::right(what, format!("the server listens on {address}"))
            }
            Ok(ServerAddress::Last(_) | ServerAddress::Never) | Err(_) => Check::noted(
                what,
                "a server holds the data directory but does not listen (starting or stopping)",
                "try again in a moment, and check its log",
            ),
        };
    }
    let listen = config.server.listen;
    match TcpListener::bind(listen) {
        Ok(_free_again) => Check::right(what, format!("{listen} is free; no server runs here")),
        Err(error) => {
            let found = format!("cannot listen on {listen}: {error}");
            Check::broken(what, found, port_remedy(listen, &error))
        }
    }
}

fn port_remedy(listen: SocketAddr, error: &io::Error) -> String {
    let port = listen.port();
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another program uses it: `ss -ltnp 'sport = :{port}'` shows which; stop it, or use \
             another address with --listen"
        ),
        io::ErrorKind::PermissionDenied => format!(
            "ports below 1024 require root: use another one with --listen, and a proxy on {port} \
             in front of it"
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("{} is not an address of this machine: use another with --listen", listen.ip())
        }
        // All other kinds have the same remedy.
        _ => "use another address with --listen".to_owned(),
    }
}

/// Checks the database; also returns when a record was last written.
fn store(data: &Path) -> (Check, Option<Timestamp>) {
    let what = "store";
    match SqliteStore::inspect(data) {
        Ok(None) if !data.exists() => {
            (Check::right(what, "will be created by the first `issuebox serve`"), None)
        }
        Ok(None) => {
            let found = "there is no database yet";
            let remedy = "the next `issuebox serve` creates one; if there was one, restore it \
                          with issuebox restore FILE";
            (Check::noted(what, found, remedy), None)
        }
        Ok(Some(seen)) => {
            let found = format!("intact, {}, layout {}", sized(seen.size), seen.layout);
            let check = if seen.layout < seen.known {
                let remedy = format!(
                    "no action needed: the next start migrates it to layout {} and keeps a copy",
                    seen.known
                );
                Check::noted(what, found, remedy)
            } else {
                Check::right(what, found)
            };
            (check, seen.newest_at)
        }
        // The error ends with what to do.
        Err(error) => {
            let error = anyhow::Error::from(error);
            let text = format!("{error:#}");
            let (found, remedy) = text.split_once("; ").unwrap_or((&text, "check its files"));
            (Check::broken(what, found, remedy), None)
        }
    }
}

fn webhook_secret(config: &Config) -> Check {
    let what = "webhook secret";
    let secrets = &config.github.webhook_secrets;
    let kept = config.server.data.join(Secrets::WEBHOOK_SECRET_FILE);
    let check = secret(what, !secrets.is_empty(), &kept);
    let is_short = secrets.iter().any(Secret::is_short);
    if check.state == CheckState::Right && is_short {
        return Check::noted(
            what,
            format!("configured, but shorter than {} characters", Secret::LEN_LOW),
            "generate a longer one (`openssl rand -hex 32`) and set it at GitHub as well",
        );
    }
    check
}

/// The GitHub App that was registered on the page, if there is one.
fn stored_app(config: &Config) -> Option<Check> {
    let (what, data) = ("GitHub App", &config.server.data);
    let dir = data.join(StoredApp::DIR);
    let app = match StoredApp::read(data) {
        Ok(app) => app?,
        Err(error) => {
            let text = error.to_string();
            let (found, remedy) = text.split_once("; ").unwrap_or((&text, "restore its files"));
            return Some(Check::broken(what, found, remedy));
        }
    };
    let found = format!("{} (id {}), stored in {}", app.about.slug, app.about.id, dir.display());
    if config.github.stored_app.is_none() {
        let remedy = format!("remove {}, or the credentials in [github]", dir.display());
        return Some(Check::noted(what, format!("{found}, is not used"), remedy));
    }
    let paths = StoredApp::paths(data);
    let mut exposed = paths.iter().filter_map(|path| exposed(what, path, &path.metadata().ok()?));
    Some(exposed.next().unwrap_or_else(|| Check::right(what, found)))
}

fn secret(what: &str, is_configured: bool, kept: &Path) -> Check {
    if is_configured {
        return Check::right(what, "configured");
    }
    let shown = kept.display();
    let text = match std::fs::read_to_string(kept) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let found = format!("will be generated by the next `issuebox serve` in {shown}");
            return Check::right(what, found);
        }
        Err(error) => {
            let found = format!("cannot read {shown}: {error}");
            return Check::broken(what, found, "run this as the server's user");
        }
    };
    if text.trim().is_empty() {
        let remedy = "write a secret into it, or remove it to have one generated";
        return Check::broken(what, format!("{shown} is empty"), remedy);
    }
    let exposed = kept.metadata().ok().and_then(|metadata| exposed(what, kept, &metadata));
    exposed.unwrap_or_else(|| Check::right(what, format!("kept in {shown}")))
}

/// Templates whose sandboxes use this machine's network.
fn host_networks(config: &Config) -> Option<Check> {
    let has_host = |template: &&Template| match template.network.kind() {
        NetworkKind::Host => true,
        NetworkKind::None | NetworkKind::Allow | NetworkKind::Full => false,
    };
    let names: Vec<_> =
        config.templates.values().filter(has_host).map(|template| template.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        Check::noted(
            "network",
            format!(
                "network = \"host\" for {}: its sandboxes reach everything that this machine \
                 reaches, including its loopback",
                names.join(", ")
            ),
            "prefer network = \"allow\" with a list of hosts",
        )
    })
}

/// Whether the clock is plausible.
fn clock(now: Timestamp, newest_at: Option<Timestamp>) -> Check {
    let what = "clock";
    let remedy = "set it: timedatectl set-ntp true";
    if now.unix_ms() < EPOCH_OF_SANITY_MS {
        return Check::broken(what, format!("it shows {now}, which is long past"), remedy);
    }
    match newest_at {
        Some(newest_at) if newest_at > now.after(CLOCK_SLACK) => {
            let found = format!("it shows {now}, but a record was written at {newest_at}");
            Check::broken(what, found, remedy)
        }
        Some(_) | None => Check::right(what, format!("it shows {now}")),
    }
}

#[cfg(test)]
mod tests;
