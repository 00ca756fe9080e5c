//! PID 1, other processes, and inherited state.

use std::time::Duration;

use issuebox::sandbox::ExecRequest;

use crate::common::{marker, processes_with, request, until};
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn pid_1_and_others_are_not_reached() {
    let Some(world) = World::new(5).await else { return };
    let server = format!("signal {}", std::process::id());
    let keys = "PATH HOME USER LOGNAME SHELL LANG TMPDIR PWD ";
    world
        .try_all(&[
            ("traces PID 1", "trace_pid_1", "EPERM"),
            ("seizes PID 1", "seize_pid_1", "EPERM"),
            ("traces a sibling", "trace_a_sibling", "EPERM"),
            ("reads PID 1's memory", "read_memory_of_pid_1", "EPERM"),
            ("writes PID 1's memory", "write_memory_of_pid_1", "EPERM"),
            ("compares itself with PID 1", "compare_with_pid_1", "EPERM"),
            ("takes PID 1's socket", "take_a_descriptor_of_pid_1", "EPERM"),
            ("opens PID 1's socket", "open_a_descriptor_of_pid_1", "EACCES"),
            ("pages PID 1's memory out", "advise_pid_1", "EACCES"),
            ("moves PID 1's memory", "move_pages_of_pid_1", "EPERM"),
            ("limits PID 1", "limit_pid_1", "EPERM"),
            ("slows PID 1 down, and so itself alone", "slow_pid_1", "done"),
            ("sends PID 1 every signal", "signal_pid_1", "done"),
            ("stops PID 1 by its directory", "stop_pid_1_by_its_directory", "done"),
            ("kills everyone", "signal_everyone", "done"),
            ("kills the server by its number", &server, "ESRCH"),
            ("finds descriptors that it was not given", "open_descriptors", "0 1 2 "),
            ("finds an environment that it was not given", "environment", keys),
            ("opens the server's terminal", "controlling_terminal", "ENXIO"),
        ])
        .await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn a_neighbour_s_processes_are_not_reached() {
    let Some(world) = World::new(6).await else { return };
    let marker = marker();
    let other = world.local.sandbox("other").await;
    let _sleeping = other.exec(request(&["sleep", &marker])).await.expect("started");
    until("the neighbour's process", || !processes_with(&marker).is_empty()).await;
    let hostile = world.hostile("killer", None).await;
    for pid in processes_with(&marker) {
        assert_eq!(hostile.attempt(&format!("signal {pid}")).await, "ESRCH");
        assert_eq!(hostile.attempt(&format!("open /proc/{pid}/mem")).await, "ENOENT");
    }
    assert_eq!(hostile.attempt("signal_everyone").await, "done");
    assert!(!processes_with(&marker).is_empty(), "it must still run");
    hostile.assert_gone_after_stop().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn pid_1_s_own_program_is_not_changed() {
    let Some(world) = World::new(15).await else { return };
    let hostile = world.hostile("program", None).await;
    // Its link to PID 1's program leads there once the fork of PID 1 follows it.
    hostile.sandbox.sh("ln -s /proc/self/exe run; touch keep").await;
    let runs = async {
        loop {
            for program in ["/proc/self/exe", "./run"] {
                let command = ["/proc/self/exe", "serve"];
                let mut command = request(&command);
                command.command[0] = program.into();
                let timeout = Some(Duration::from_millis(500));
                hostile.sandbox.run(ExecRequest { timeout, ..command }).await;
            }
        }
    };
    let result = tokio::select! {
        result = hostile.attempt("change_the_program_of_pid_1") => result,
        () = runs => unreachable!("it never ends"),
    };
    assert_eq!(result, "EROFS EROFS EROFS");
    world.assert_unharmed("changing PID 1's program").await;
    hostile.assert_gone_after_stop().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn a_terminal_of_the_server_leaks_nothing() {
    let Some(world) = World::new(13).await else { return };
    let hostile = world.hostile("terminal", None).await;
    for (attempt, comes_to) in [
        ("type_into_the_server_s_terminal", "EPERM"),
        ("become_the_console", "EPERM"),
        ("open_descriptors", "0 1 2 "),
        ("controlling_terminal", "done"),
        ("open_a_descriptor_of_pid_1", "EACCES"),
    ] {
        assert_eq!(hostile.attempt_at_a_terminal(attempt).await, comes_to, "{attempt}");
        world.assert_unharmed(attempt).await;
    }
    hostile.assert_gone_after_stop().await;
    world.end().await;
}
