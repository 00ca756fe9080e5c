//! Control groups made in an ordinary directory that imitates the kernel's, so that both versions
//! can be tested on any machine.

use super::group::Doors;
use super::*;

const RESOURCES: Resources = Resources { cpu: 2.0, memory_mb: 128, processes: 32, disk_mb: 1 };

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).expect("readable")
}

/// A directory with these files. Unlike in the kernel, directories made below it get no files.
fn stands_in(dir: &Path, files: &[(&str, &str)]) {
    fs::create_dir_all(dir).expect("made");
    for (name, content) in files {
        fs::write(dir.join(name), content).expect("written");
    }
}

#[test]
fn a_controller_that_refuses_is_named_with_its_reason() {
    let root = tempfile::tempdir().expect("a directory");
    let found = find::OwnGroups {
        first: vec![("memory".into(), root.path().join("nowhere"))],
        second: Some(root.path().to_owned()),
    };
    stands_in(root.path(), &[("cgroup.controllers", "cpu io\n"), ("cgroup.subtree_control", "")]);
    let cgroups = Cgroups::try_out("id", &found);
    for controller in Controller::ALL {
        assert!(!cgroups.has(controller), "{controller:?}");
    }
    assert!(cgroups.why_not(Controller::Memory).expect("a reason").contains("nowhere"));
    // It could be switched on, but the directory is not the kernel's: its files are missing.
    assert!(cgroups.why_not(Controller::Cpu).expect("a reason").contains("cpu.max"));
    assert!(cgroups.why_not(Controller::Pids).expect("a reason").contains("no such controller"));
    assert_eq!(read(root.path().join("cgroup.subtree_control")), "+cpu");
}

#[test]
fn in_version_2_a_controller_is_switched_on_once() {
    let root = tempfile::tempdir().expect("a directory");
    let switch = root.path().join("cgroup.subtree_control");
    stands_in(root.path(), &[("cgroup.subtree_control", "cpu")]);
    assert!(switch_on(root.path(), Controller::Cpu).is_ok(), "it is on already");
    assert_eq!(read(&switch), "cpu", "it was left alone");
    assert!(switch_on(root.path(), Controller::Pids).is_ok(), "nothing is in the way");
    assert_eq!(read(&switch), "+pids");
    assert_eq!(base_of(&root.path().join(SERVER_LEAF)), root.path());
    assert_eq!(base_of(root.path()), root.path());
}

#[test]
fn in_version_2_memory_is_limited_for_workers_and_the_rest_for_all() {
    let root = tempfile::tempdir().expect("a directory");
    let (dir, work) = (root.path().join("box"), root.path().join("box/work"));
    let files = ["cgroup.subtree_control", "cpu.max", "pids.max"].map(|name| (name, ""));
    stands_in(&dir, &files);
    stands_in(&work, &[("memory.max", ""), ("cgroup.procs", "")]);
    stands_in(&dir.join("rest"), &[("cgroup.procs", "")]);
    // As if it was just made: here no kernel creates the files.
    let mut group = Group::made(dir.clone());
    for controller in Controller::ALL {
        let usable =
            Usable { controller, version: CgroupVersion::Second, below: root.path().into() };
        group = group.with(&usable, "box", &RESOURCES).expect("made");
    }
    assert_eq!(read(dir.join("cgroup.subtree_control")), "+memory");
    assert_eq!(read(work.join("memory.max")), "134217728");
    assert_eq!(read(dir.join("cpu.max")), "200000 100000");
    assert_eq!(read(dir.join("pids.max")), "32");
    assert!(!work.join("memory.swap.max").exists(), "a kernel without swap has no such file");
    let Doors { all, work: doors } = group.doors().expect("open");
    assert_eq!(all.len(), 1, "one group for all but the workers");
    let (enter, leave) = doors.expect("memory is limited");
    for (door, text) in [(&all[0], "all"), (&leave, "left"), (&enter, "works")] {
        rustix::io::write(door, text.as_bytes()).expect("written");
    }
    assert_eq!(read(work.join("cgroup.procs")), "works");
    assert_eq!(read(dir.join("rest/cgroup.procs")), "left", "where they came from");
    assert_eq!(group.limit_events(Controller::Memory), None);
    stands_in(&work, &[("memory.events", "oom 9\noom_kill 2\n")]);
    stands_in(&dir, &[("pids.events", "max 7\n")]);
    assert_eq!(group.limit_events(Controller::Memory), Some(2));
    assert_eq!(group.limit_events(Controller::Pids), Some(7));
    assert_eq!(group.limit_events(Controller::Cpu), None);
}

#[test]
fn a_lost_controller_is_noticed_and_stays_lost() {
    let root = tempfile::tempdir().expect("a directory");
    let usable = |controller| {
        let below = root.path().to_owned();
        Usable { controller, version: CgroupVersion::Second, below }
    };
    let cgroups = Cgroups {
        prefix: "issuebox-id-".into(),
        usable: vec![usable(Controller::Cpu), usable(Controller::Pids)],
        missing: vec![(Controller::Memory, "never there".into())],
        lost: Mutex::default(),
    };
    let switched_on = |on: &str| stands_in(root.path(), &[("cgroup.subtree_control", on)]);
    let seen = || Controller::ALL.map(|controller| cgroups.has(controller));
    switched_on("cpu io pids\n");
    assert_eq!(seen(), [false, true, true]);
    assert_eq!(cgroups.why_not(Controller::Pids), None);
    for on in ["cpu io\n", "cpu io pids\n"] {
        switched_on(on);
        assert_eq!(seen(), [false, true, false], "with {on:?}");
        assert!(cgroups.why_not(Controller::Pids).expect("a reason").contains("Delegate=yes"));
        assert_eq!(cgroups.why_not(Controller::Memory), Some("never there"));
    }
    switched_on("");
    drop(cgroups.make("box", &RESOURCES).expect("a group with nothing in it"));

    // A running sandbox has lost it too.
    let dir = root.path().join("box");
    stands_in(&dir, &["cpu.max", "cgroup.procs"].map(|name| (name, "")));
    let group = Group::made(dir.clone()).with(&usable(Controller::Cpu), "box", &RESOURCES);
    let group = group.expect("made");
    assert_eq!(group.lost(), None);
    fs::remove_file(dir.join("cpu.max")).expect("taken away");
    assert_eq!(group.lost(), Some(Controller::Cpu));
}

#[test]
fn a_group_goes_with_its_leaves() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join("box");
    for leaf in ["work", "rest"] {
        fs::create_dir_all(dir.join(leaf)).expect("made");
    }
    drop(Group::made(dir.clone()));
    assert!(!dir.exists());
}

#[test]
fn memory_in_a_shared_hierarchy_is_not_limited() {
    let at = |name: &str| (name.to_owned(), PathBuf::from("/cg/all"));
    let memory =
        |version| Usable { controller: Controller::Memory, version, below: "/cg/all".into() };
    let together = [at("memory"), at("pids")];
    let why = memory(CgroupVersion::First).clash(&together).expect("a reason");
    assert!(why.contains("pids"), "{why}");
    assert_eq!(memory(CgroupVersion::First).clash(&together[..1]), None);
    assert_eq!(memory(CgroupVersion::Second).clash(&together), None);
}
