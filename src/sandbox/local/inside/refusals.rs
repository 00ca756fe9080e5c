//! A wrongly set up sandbox does not become ready: each test makes one mistake in a real launcher,
//! and PID 1 finds it.
//!
//! The launcher is this test binary, with mistakes switched on. It forks because a launcher has
//! one thread and a test binary has more.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use bytes::Bytes;
use rustix::process::{WaitOptions, waitpid};

use super::super::cgroup::{Cgroups, Controller};
use super::super::frame::{Answer, PACKET_LEN_MAX, Request, Setup};
use super::super::image::{IMAGE, Templates};
use super::super::launching::LaunchError;
use super::super::packet;
use super::super::read_only::ReadOnlyCopies;
use super::super::spawner::socket_pair;
use super::copies;
use super::launch::launch;
use super::sys::{self, Fork};
use crate::sabotage::{self, Bug};
use crate::sandbox::reach::Reach;
use crate::types::Resources;

/// Each mistake, and PID 1's message.
const MISTAKES: [(Bug, &str); 20] = [
    (Bug::CapabilitiesKept, "CapPrm is not empty"),
    (Bug::BoundingSetKept, "CapBnd is not empty"),
    (Bug::PrivilegesGained, "NoNewPrivs is not set"),
    (Bug::CallsNotFiltered, "system calls are not filtered"),
    (Bug::FilterMissing, "system calls are not filtered"),
    (Bug::HostGroupInside, "gid 0 of the host is mapped into the sandbox"),
    (Bug::HostRootInside, "uid 0 of the host is mapped into the sandbox"),
    (Bug::RootInside, "PID 1 is not uid and gid 1000"),
    (Bug::RootGroupInside, "PID 1 is not uid and gid 1000"),
    (Bug::DevicesOpened, "/tmp opens devices"),
    (Bug::SetUidHonoured, "honours set-uid"),
    (Bug::ProgramsWritable, "/usr is writable"),
    (Bug::ProcUncovered, "is not covered"),
    (Bug::RootWritable, "/ is writable"),
    (Bug::DumpableInside, "PID 1 is dumpable"),
    (Bug::OutlivesLauncher, "PID 1 would outlive its launcher"),
    (Bug::NetworkShared, "the sandbox has the host's network"),
    (Bug::DescriptorInherited, "was inherited"),
    (Bug::InWorkGroup, "PID 1 is in the group"),
    (Bug::BarriersOff, "write barriers stay off"),
];

/// The number of a mistake; set if this binary is to be the launcher that makes it.
const MISTAKE: &str = "ISSUEBOX_TEST_MISTAKE";

/// The mistake of this binary as the helper that copies mounts.
const COPIES: &str = "copies";

/// What the server gives a launcher as it is on the host, instead of a read-only copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OfTheHost {
    Nothing,
    Program,
    Lock,
}

/// Acts as the launcher.
#[test]
fn launcher_with_a_mistake() {
    let Ok(mistake) = std::env::var(MISTAKE) else { return };
    match sys::fork().expect("forked") {
        Fork::Parent(child) => {
            waitpid(Some(child), WaitOptions::empty()).expect("waited");
        }
        Fork::Child => {
            let number = mistake.parse::<usize>().ok();
            let directory = std::env::args_os().next_back().expect("arguments");
            let _ = match number.and_then(|number| MISTAKES.get(number)) {
                Some((bug, _)) => sabotage::with(*bug, launch),
                None if mistake == COPIES => copies::run(Path::new(&directory)),
                None => launch(),
            };
            sys::exit_now(0)
        }
    }
}

/// Has this binary act as a launcher with a mistake.
fn acts(mut command: Command, mistake: &str) -> Command {
    command
        .args(["--exact", "sandbox::local::inside::refusals::launcher_with_a_mistake"])
        .args(["--nocapture", "--test-threads=1"])
        .env(MISTAKE, mistake);
    command
}

/// What a launcher and PID 1 answer: the failure, or `None` if both are up.
fn answer(socket: &OwnedFd) -> Option<(String, i32)> {
    let (mut buffer, mut beside) = (vec![0; PACKET_LEN_MAX], Vec::new());
    let mut is_half_up = false;
    loop {
        let len = packet::receive(socket, &mut buffer, &mut beside).expect("received");
        match Answer::decode(&buffer[..len]).expect("an answer") {
            Answer::Forked { .. } | Answer::Ready if is_half_up => return None,
            Answer::Forked { .. } | Answer::Ready => is_half_up = true,
            Answer::SetupFailed { step, errno } => return Some((step, errno)),
            other => panic!("{other:?}"),
        }
    }
}

/// The failure of a launcher with a mistake; `None` if the sandbox becomes ready. Its workspace is
/// an image if there are templates.
fn refusal(
    mistake: &str,
    images: Option<&Templates>,
    of_the_host: OfTheHost,
) -> Option<(String, i32)> {
    let dir = tempfile::tempdir().expect("a directory");
    let lock: OwnedFd = File::create(dir.path().join("lock")).expect("a lock").into();
    let host_id = rustix::process::geteuid().is_root().then_some(2_000_001);
    match images {
        Some(images) => images.copy(16, &dir.path().join(IMAGE)).expect("an image"),
        None => {
            let workspace = dir.path().join("workspace");
            fs::create_dir(&workspace).expect("a workspace");
            std::os::unix::fs::chown(&workspace, host_id, host_id).expect("chowned");
        }
    }
    let object: OwnedFd = File::open(dir.path()).expect("opened").into();

    let (ours, theirs) = socket_pair().expect("sockets");
    let itself = || Command::new(std::env::current_exe().expect("known"));
    let copies = ReadOnlyCopies::made_by(acts(itself(), COPIES), dir.path());
    let copies = match copies {
        Ok(copies) => copies,
        Err(LaunchError { step, errno }) => return Some((step, errno)),
    };
    let program = if of_the_host == OfTheHost::Program { itself() } else { copies.command() };
    let lock =
        if of_the_host == OfTheHost::Lock { lock } else { copies.lock(&object).expect("there") };
    let mut launcher = acts(program, mistake)
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let cgroups = Cgroups::open("refusals");
    let resources = Resources { cpu: 1.0, memory_mb: 64, processes: 32, disk_mb: 16 };
    let group = cgroups.make(&format!("of-{mistake}"), &resources).expect("a group");
    let doors = group.doors().expect("open").work;
    let setup = Setup {
        host_id,
        shares_counters: host_id.is_none(),
        processes_max: 32,
        disk_mb_max: 16,
        data_mb_max: None,
        scratch_mb: 16,
        has_work_group: doors.is_some(),
        reach: Reach::Loopback,
        git_config: Bytes::new(),
        programs: Vec::new(),
    };
    let order = Request::Setup(setup).encode();
    let doors = doors.iter().flat_map(|(enter, leave)| [enter, leave]);
    let beside: Vec<_> = [&object, &lock].into_iter().chain(doors).map(AsFd::as_fd).collect();
    packet::send(&ours, &order, &beside).expect("sent");
    let refusal = answer(&ours);
    drop(ours);
    launcher.wait().expect("waited");
    refusal
}

#[test]
fn a_wrongly_set_up_sandbox_never_becomes_ready() {
    if let Some(trouble) = refusal("none", None, OfTheHost::Nothing) {
        let required = std::env::var("ISSUEBOX_REQUIRE_LOCAL").is_ok_and(|v| v == "1");
        assert!(!required, "{trouble:?}");
        writeln!(std::io::stderr(), "SKIPPED: {trouble:?}").expect("standard error");
        return;
    }
    let is_root = rustix::process::geteuid().is_root();
    let has_group = Cgroups::open("refusals").has(Controller::Memory);
    let dir = tempfile::tempdir().expect("a directory");
    let images = Templates::open(&dir.path().join("images")).ok();
    for (number, (bug, message)) in MISTAKES.iter().enumerate() {
        let is_of_root = matches!(bug, Bug::HostRootInside | Bug::HostGroupInside);
        if is_of_root && !is_root || *bug == Bug::InWorkGroup && !has_group {
            continue;
        }
        let images = images.as_ref().filter(|_| *bug == Bug::BarriersOff);
        if *bug == Bug::BarriersOff && images.is_none() {
            continue;
        }
        let refusal = refusal(&number.to_string(), images, OfTheHost::Nothing);
        let (step, errno) = refusal.unwrap_or_else(|| panic!("{bug:?} must be found"));
        assert!(step.contains(message) && errno == 0, "{bug:?}: {step}, {errno}");
    }
    let message = "is on a mount of the host that can be changed";
    for (held, link) in
        [(OfTheHost::Program, "/proc/self/exe"), (OfTheHost::Lock, "/proc/self/fd/")]
    {
        let (step, errno) = refusal("none", None, held).expect("it must be found");
        assert!(step.starts_with(link) && step.ends_with(message) && errno == 0, "{step}, {errno}");
    }
}
