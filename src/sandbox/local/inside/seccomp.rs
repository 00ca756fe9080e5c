//! The system-call filters of a sandbox.
//!
//! Namespaces and missing capabilities already isolate a sandbox. The filters remove rarely used
//! parts of the kernel, where most of its bugs are, and the few calls by which one process of a
//! sandbox could reach into another. A filter has one answer for all calls it matches, so there
//! are three filters: *not permitted*, *not implemented*, and *not implemented* for every call
//! newer than the [table]. All programs run unchanged except those that need refused calls:
//! debuggers, tracers, and other sandboxes. A program of another architecture (32-bit on a 64-bit
//! one) is killed at its first call, since its call numbers mean other calls.
//!
//! PID 1 installs them when everything is set up, so every command has them from its first
//! instruction. No process can remove them.

mod table;

use std::collections::BTreeMap;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use super::{NameStep, SetupError};
use crate::sabotage::{Bug, on};
use table::{
    CLONE, FAMILIES, IOCTL, LAST_JUDGED, LIMITS, NAMESPACES, NOT_PERMITTED, NOT_THERE, Processor,
    SOCKETS, SystemCall, TERMINAL_TRICKS,
};

/// The number of filters.
pub const FILTERS: usize = 3;

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

    /// Installs them in this process and its future children. *No new privileges* must be set.
    pub fn install(&self) -> Result<(), SetupError> {
        let filters = if on(Bug::FilterMissing) { &self.0[1..] } else { &self.0[..] };
        filters.iter().try_for_each(|one| seccompiler::apply_filter(one).map_err(not_installed))
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
        Ok([not_permitted, not_there, nothing_newer()])
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
    for call in SOCKETS {
        let other = FAMILIES.map(|family| is(0, SeccompCmpOp::Ne, family));
        catch(call, vec![SeccompRule::new(other.into_iter().collect::<Result<_, _>>()?)?]);
    }
    Ok(rules)
}

/// Matches every call above the last one of the table. Hand-written, since the library compares
/// call numbers only for equality; the other filters check the processor.
fn nothing_newer() -> BpfProgram {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_GREATER: u16 = 0x25;
    const RETURN: u16 = 0x06;
    const NUMBER_OFFSET: u32 = 0;
    let refuse = SeccompAction::Errno(Errno::NOSYS.raw_os_error().unsigned_abs());
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        step(LOAD_WORD, 0, 0, NUMBER_OFFSET),
        step(JUMP_IF_GREATER, 0, 1, LAST_JUDGED),
        step(RETURN, 0, 0, refuse.into()),
        step(RETURN, 0, 0, SeccompAction::Allow.into()),
    ]
}

#[cfg(test)]
mod tests;
