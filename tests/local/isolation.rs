//! The parts of the host that a sandbox can't see, reach or become.

use issuebox::sandbox::WorkError;

use crate::common::{Local, request};

#[tokio::test(flavor = "multi_thread")]
async fn the_host_s_files_are_hidden() {
    let Some(local) = Local::new().await else { return };
    let secret = local.dir.path().join("secret");
    std::fs::write(&secret, "secret").expect("written");
    let sandbox = local.sandbox("files").await;
    let seen = sandbox.sh(&format!("ls {} 2>&1 || true", secret.display())).await;
    assert!(seen.contains("No such file"), "{seen}");
    for path in
        ["/etc/shadow", "/root", "/sys", "/boot", "/var/lib", "/home/user", "/run/docker.sock"]
    {
        let ended = sandbox.run(request(&["ls", "-d", path])).await;
        assert_ne!(ended.code, 0, "{path} must not be there");
    }
    let root = sandbox.sh("ls / | tr '\\n' ' '").await;
    let known =
        ["bin", "dev", "etc", "home", "lib", "proc", "sbin", "tmp", "usr", "var", "workspace"];
    for name in root.split_whitespace() {
        assert!(known.contains(&name) || name.starts_with("lib"), "/{name} must not be there");
    }
    // The old root must not be below or above anything.
    assert_eq!(
        sandbox.sh("cd /../../..; ls -d /proc/self/root/etc/shadow 2>/dev/null; echo").await,
        "\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_s_processes_and_environment_are_hidden() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("processes").await;
    let seen = sandbox.sh("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").await;
    let own = std::env::current_exe().expect("known");
    let own = own.file_name().expect("is a file").to_str().expect("is text");
    assert!(!seen.contains(own), "this test's own process must not be seen: {seen}");
    let pids: Vec<u32> = sandbox
        .sh("ls /proc | grep '^[0-9]' ")
        .await
        .lines()
        .map(|pid| pid.parse().expect("a pid"))
        .collect();
    assert!(pids.contains(&1) && pids.iter().all(|pid| *pid < 100), "{pids:?}");
    let env = sandbox.run(request(&["env"])).await.stdout;
    let mut keys: Vec<&str> = env.lines().filter_map(|line| line.split('=').next()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TMPDIR", "USER"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pid_1_can_not_be_looked_into_or_signalled() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("pid1").await;
    for path in ["environ", "mem", "maps", "fd", "fd/3", "root/", "exe", "cwd/"] {
        let ended = sandbox
            .run(request(&["sh", "-c", &format!("cat /proc/1/{path} || ls /proc/1/{path}/")]))
            .await;
        assert_ne!(ended.code, 0, "/proc/1/{path} must be refused: {ended:?}");
    }
    for signal in ["TERM", "KILL", "STOP", "SEGV", "CHLD"] {
        sandbox.run(request(&["sh", "-c", &format!("kill -{signal} 1")])).await;
    }
    // Kills every process that it may signal; PID 1 must survive.
    sandbox.run(request(&["sh", "-c", "kill -KILL -1"])).await;
    assert_eq!(sandbox.sh("echo still here").await, "still here\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_network_but_loopback() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("network").await;
    let devices = sandbox.sh("tail -n +3 /proc/net/dev | cut -d: -f1").await;
    assert!(devices.split_whitespace().any(|name| name == "lo"), "{devices}");
    assert!(!devices.contains("eth"), "{devices}");
    // No server listens there: only a raised interface refuses.
    let script = "echo > /dev/tcp/127.0.0.1/9";
    let ended = sandbox.run(request(&["bash", "-c", script])).await;
    assert!(ended.stderr.contains("refused"), "{ended:?}");
    // A socket of the host, by loopback or by an abstract name.
    let host = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = host.local_addr().expect("bound").port();
    let script = format!("echo > /dev/tcp/127.0.0.1/{port}");
    let ended = sandbox.run(request(&["bash", "-c", &script])).await;
    assert!(ended.stderr.contains("refused"), "{ended:?}");
    let ended = sandbox.run(request(&["bash", "-c", "echo > /dev/tcp/192.0.2.1/80"])).await;
    assert!(ended.stderr.contains("unreachable"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_unprivileged_and_can_not_become_root() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("unprivileged").await;
    assert_eq!(sandbox.sh("id -u; id -g; id -un").await, "1000\n1000\nagent\n");
    let status = sandbox.sh("cat /proc/self/status").await;
    for line in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]
        .map(|c| format!("{c}:\t0000000000000000"))
    {
        assert!(status.contains(&line), "{line} in {status}");
    }
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    let map = sandbox.sh("cat /proc/self/uid_map").await;
    let outer: u32 = map.split_whitespace().nth(1).expect("a map").parse().expect("a uid");
    assert_ne!(outer, 0, "{map}");
    for script in [
        "unshare -U true",
        "unshare -Ur true",
        "unshare -m true",
        "mount -t tmpfs none /tmp",
        "mount -o remount,rw /usr",
        "chroot / true",
        "hostname other",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo 10 > /proc/sys/user/max_user_namespaces",
        "mknod /tmp/null c 1 3",
        "nsenter -t 1 -m true",
    ] {
        let ended = sandbox.run(request(&["sh", "-c", script])).await;
        assert_ne!(ended.code, 0, "{script} must be refused");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_few_sized_places_can_be_written_to() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("readonly").await;
    for path in ["/", "/usr", "/usr/bin", "/etc", "/dev", "/etc/ssl/certs", "/var", "/lib"] {
        let ended = sandbox.run(request(&["touch", &format!("{path}/new")])).await;
        assert!(ended.stderr.contains("Read-only"), "{path}: {ended:?}");
    }
    for path in ["/etc/passwd", "/etc/resolv.conf", "/usr/bin/env"] {
        let ended = sandbox.run(request(&["sh", "-c", &format!("echo >> {path}")])).await;
        assert_ne!(ended.code, 0, "{path}: {ended:?}");
    }
    sandbox.sh("touch /tmp/new /var/tmp/new2 /dev/shm/new ~/new /workspace/new").await;
    sandbox.sh("echo gone > /dev/null; head -c 10 /dev/urandom > /dev/zero").await;
    let sizes = sandbox.sh("df -m /tmp /home /dev/shm --output=size | tail -n +2").await;
    let sizes: Vec<&str> = sizes.split_whitespace().collect();
    assert_eq!(sizes, ["449"; 3], "of 512 MB of memory, together");
    sandbox.sh("head -c 300000000 /dev/zero > /tmp/new").await;
    let ended = sandbox.run(request(&["sh", "-c", "head -c 300000000 /dev/zero > ~/new"])).await;
    assert!(ended.stderr.contains("No space left"), "{ended:?}");
    // A set-uid bit in the workspace has no effect.
    let options = sandbox.sh("grep ' /workspace ' /proc/self/mountinfo").await;
    assert!(options.contains("nosuid,nodev"), "{options}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_descriptor_is_inherited() {
    let Some(local) = Local::new().await else { return };
    // A descriptor that the server would leak if its launcher did not close it.
    let leaked = std::fs::File::open("/etc/passwd").expect("opened");
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).expect("inheritable");
    let sandbox = local.sandbox("descriptors").await;
    let seen = sandbox.run(request(&["ls", "-l", "/proc/self/fd"])).await.stdout;
    let open: Vec<&str> = seen.lines().filter_map(|line| line.split(" -> ").nth(1)).collect();
    let (streams, own) = open.split_at(3);
    assert!(streams.iter().all(|stream| stream.starts_with("pipe:")), "{seen}");
    assert_eq!(own.len(), 1, "and the directory that ls reads: {seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sandboxes_do_not_see_each_other() {
    let Some(local) = Local::new().await else { return };
    let (one, other) = (local.sandbox("one").await, local.sandbox("other").await);
    one.sh("echo mine > /workspace/file; echo mine > /tmp/file; echo mine > /dev/shm/file").await;
    assert_eq!(other.sh("ls /workspace /tmp /dev/shm | grep file || echo none").await, "none\n");
    if rustix::process::geteuid().is_root() {
        assert_ne!(
            one.sh("cat /proc/self/uid_map").await,
            other.sh("cat /proc/self/uid_map").await
        );
    }
    assert_eq!(other.read(b"file").await, Err(WorkError::NoSuchFile));
}

#[tokio::test(flavor = "multi_thread")]
async fn ordinary_tools_work() {
    let Some(local) = Local::new().await else { return };
    let sandbox = local.sandbox("tools").await;
    sandbox.sh("ls -la / /etc /dev >/dev/null; date; uname -a; getent hosts localhost").await;
    for (tool, script) in [
        (
            "git",
            "git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x",
        ),
        (
            "python3",
            "/usr/bin/python3 -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1]))'",
        ),
        ("perl", "perl -e 'use POSIX; print 1'"),
        ("awk", "awk 'BEGIN { print 1 }'"),
    ] {
        if std::path::Path::new("/usr/bin").join(tool).exists() {
            sandbox.sh(script).await;
        }
    }
}
