//! The system-call filters of a sandbox.
//!
//! Namespaces and missing capabilities already isolate a sandbox. The filters remove rarely used
//! parts of the kernel, where most of its bugs are, and the few calls by which one process of a
//! sandbox could reach into another. A filter has one answer for all calls it matches, so there
//! are four filters: *not permitted*, *not implemented*, *not implemented* for every call newer
//! than the [table], and *the launcher answers* for [netlink sockets](super::netlink). All programs run unchanged except those that need refused calls:
//! debuggers, tracers, and other sandboxes. A program of another architecture (32-bit on a 64-bit
//! one) is killed at its first call, since its call numbers mean other calls.
//!
//! PID 1 installs them when everything is set up, so every command has them from its first
//! instruction. No process can remove them.

mod table;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use super::{NameStep, SetupError, sys};
use crate::sabotage::{Bug, on};
use table::{
    CLONE, FAMILIES, INTERNET_PROTOCOLS, IOCTL, LAST_JUDGED, LIMITS, NAMESPACES, NETLINK,
    NETLINK_ROUTE, NOT_PERMITTED, NOT_THERE, PERSONALITY, PERSONAS, Processor, SET_OPTION, SOCKET,
    SOCKETPAIR, SystemCall, TERMINAL_TRICKS, UNCOUNTED_OPTIONS, UNIX,
};

/// The number of filters.
pub const FILTERS: usize = 4;

/// The filters for this processor. A launcher builds them while it waits for its order, since that
/// takes as long as some set-up steps.
pub struct Filters([BpfProgram; FILTERS]);

impl Filters {
    /// Builds them.
    pub fn build() -> Result<Self, SetupError> {
        let none =
            || SetupError::check("this processor has no system-call filter; use x86_64 or aarch64");
        filters(Processor::OWN.ok_or_else(none)?).map(Self)
    }

    /// Installs them in this process and its future children, and returns the listener to which
    /// netlink sockets are left. *No new privileges* must be set.
    pub fn install(&self) -> Result<OwnedFd, SetupError> {
        let [refusing @ .., left_to_launcher] = &self.0;
        let refusing = if on(Bug::FilterMissing) { &refusing[1..] } else { refusing };
        refusing
            .iter()
            .try_for_each(|one| seccompiler::apply_filter(one).map_err(not_installed))?;
        sys::install_with_listener(left_to_launcher).step("install the filter of netlink sockets")
    }
}

fn not_installed(error: seccompiler::Error) -> SetupError {
    let step = "install the system-call filter";
    match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => {
            Err::<(), _>(error).step(step).expect_err("it is an error")
        }
        other => SetupError::check(format!("cannot {step}: {other}")),
    }
}

/// The filters for a processor.
fn filters(processor: Processor) -> Result<[BpfProgram; FILTERS], SetupError> {
    let build = || -> Result<[BpfProgram; FILTERS], seccompiler::BackendError> {
        let not_permitted = compile(processor, not_permitted(processor)?, Errno::PERM)?;
        let not_there = compile(processor, all_of(processor, NOT_THERE), Errno::NOSYS)?;
        Ok([not_permitted, not_there, nothing_newer(), left_to_launcher(processor)])
    };
    build()
        .map_err(|error| SetupError::check(format!("cannot build the system-call filter: {error}")))
}

type FilterRules = BTreeMap<i64, Vec<SeccompRule>>;

fn compile(
    processor: Processor,
    rules: FilterRules,
    answer: Errno,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let processor = match processor {
        Processor::X86_64 => TargetArch::x86_64,
        Processor::Aarch64 => TargetArch::aarch64,
    };
    let refuse = SeccompAction::Errno(answer.raw_os_error().unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, processor)?.try_into()
}

/// Rules that match calls with any arguments: an empty rule list means that.
fn all_of(processor: Processor, calls: &[SystemCall]) -> FilterRules {
    calls.iter().filter_map(|call| Some((call.number(processor)?, Vec::new()))).collect()
}

fn not_permitted(processor: Processor) -> Result<FilterRules, seccompiler::BackendError> {
    let mut rules = all_of(processor, NOT_PERMITTED);
    let mut catch = |call: SystemCall, caught: Vec<SeccompRule>| {
        rules.extend(call.number(processor).map(|number| (number, caught)));
    };
    // The kernel uses 32 bits of these arguments, so the upper bits must not matter.
    let is = |argument, operator, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    };
    let any = |conditions: Vec<SeccompCondition>| -> Result<Vec<SeccompRule>, _> {
        conditions.into_iter().map(|condition| SeccompRule::new(vec![condition])).collect()
    };
    let namespaces = NAMESPACES.map(|flag| is(0, SeccompCmpOp::MaskedEq(flag), flag));
    catch(CLONE, any(namespaces.into_iter().collect::<Result<_, _>>()?)?);
    let terminal = TERMINAL_TRICKS.map(|request| is(1, SeccompCmpOp::Eq, request));
    catch(IOCTL, any(terminal.into_iter().collect::<Result<_, _>>()?)?);
    // Programs use pid 0 for their own limits.
    let of_another = is(0, SeccompCmpOp::Ne, 0)?;
    let to_set = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    catch(LIMITS, vec![SeccompRule::new(vec![of_another, to_set])?]);
    let none_of = |argument, allowed: &[u64]| -> Result<Vec<SeccompCondition>, _> {
        allowed.iter().map(|value| is(argument, SeccompCmpOp::Ne, *value)).collect()
    };
    let other_family = SeccompRule::new(none_of(0, &FAMILIES)?)?;
    let mut of_internet = none_of(2, &INTERNET_PROTOCOLS)?;
    of_internet.extend(none_of(0, &[UNIX, NETLINK])?);
    let mut of_netlink = none_of(2, &[NETLINK_ROUTE])?;
    of_netlink.push(is(0, SeccompCmpOp::Eq, NETLINK)?);
    let of_protocols = [SeccompRule::new(of_internet)?, SeccompRule::new(of_netlink)?];
    catch(SOCKETPAIR, vec![other_family.clone()]);
    catch(SOCKET, [vec![other_family], of_protocols.into()].concat());
    let other_persona = SeccompRule::new(none_of(0, &PERSONAS)?)?;
    catch(PERSONALITY, vec![other_persona]);
    let options = UNCOUNTED_OPTIONS.map(|(level, option)| {
        SeccompRule::new(vec![is(1, SeccompCmpOp::Eq, level)?, is(2, SeccompCmpOp::Eq, option)?])
    });
    catch(SET_OPTION, options.into_iter().collect::<Result<_, _>>()?);
    Ok(rules)
}

// Instructions of the filters that are written by hand.
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_GREATER: u16 = 0x25;
const RETURN: u16 = 0x06;
/// Where a filter finds the call's number, and its first argument's lower half.
const NUMBER_OFFSET: u32 = 0;
const FIRST_ARGUMENT_OFFSET: u32 = 16;
/// A filter's answer that leaves the call to a listener.
const NOTIFY: u32 = 0x7fc0_0000;

const fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// Matches every call above the last one of the table. Hand-written, since the library compares
/// call numbers only for equality; the other filters check the processor.
fn nothing_newer() -> BpfProgram {
    let refuse = SeccompAction::Errno(Errno::NOSYS.raw_os_error().unsigned_abs());
    vec![
        instruction(LOAD_WORD, 0, 0, NUMBER_OFFSET),
        instruction(JUMP_IF_GREATER, 0, 1, LAST_JUDGED),
        instruction(RETURN, 0, 0, refuse.into()),
        instruction(RETURN, 0, 0, SeccompAction::Allow.into()),
    ]
}

/// Leaves netlink sockets to the launcher. Hand-written, since the library has no such answer.
fn left_to_launcher(processor: Processor) -> BpfProgram {
    let number = SOCKET.number(processor).and_then(|number| u32::try_from(number).ok());
    let family = u32::try_from(NETLINK).unwrap_or_default();
    vec![
        instruction(LOAD_WORD, 0, 0, NUMBER_OFFSET),
        instruction(JUMP_IF_EQUAL, 0, 3, number.unwrap_or(u32::MAX)),
        instruction(LOAD_WORD, 0, 0, FIRST_ARGUMENT_OFFSET),
        instruction(JUMP_IF_EQUAL, 0, 1, family),
        instruction(RETURN, 0, 0, NOTIFY),
        instruction(RETURN, 0, 0, SeccompAction::Allow.into()),
    ]
}

#[cfg(test)]
mod tests;
