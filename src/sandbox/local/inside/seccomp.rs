//! The system calls that nothing in a sandbox may make.
//!
//! Namespaces and the lack of capabilities already keep a sandbox where it is; the filter takes
//! away the kernel's rarely used parts, in which most of its holes are found, and the few calls
//! that would reach from one process of a sandbox into another's. A filter has one answer for all
//! that it catches, so there are three: *not permitted*, *not there*, and *not there* for every
//! call that is newer than the [table]. All programs run unchanged but those whose work is what is
//! refused: debuggers, tracers, and sandboxes of their own. A program for another processor (one
//! of 32 bits on a 64-bit one) is killed at its first call, since its numbers mean other calls.
//!
//! PID 1 installs them in itself when all is set up, and so every command has them from its first
//! instruction. Nobody can take them away.

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

/// How many filters there are.
pub const FILTERS: usize = 3;

/// The filters of this processor. Building them takes as long as some of the steps of setting up,
/// so that is done while a launcher waits for its order.
pub struct Filters([BpfProgram; FILTERS]);

impl Filters {
    /// Builds them.
    pub fn build() -> Result<Self, SetupError> {
        let none = || SetupError::check("there is no system-call filter for this processor");
        filters(Processor::OWN.ok_or_else(none)?).map(Self)
    }

    /// Installs them in this process and all that it will start. *No new privileges* must be set.
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
        other => SetupError::check(format!("could not {step}: {other}")),
    }
}

/// The filters for a processor.
fn filters(processor: Processor) -> Result<[BpfProgram; FILTERS], SetupError> {
    let build = || -> Result<[BpfProgram; FILTERS], seccompiler::BackendError> {
        let not_permitted = compile(processor, not_permitted(processor)?, Errno::PERM)?;
        let not_there = compile(processor, all_of(processor, NOT_THERE), Errno::NOSYS)?;
        Ok([not_permitted, not_there, nothing_newer()])
    };
    build().map_err(|error| {
        SetupError::check(format!("could not build the system-call filter: {error}"))
    })
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn compile(
    processor: Processor,
    rules: Rules,
    answer: Errno,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let processor = match processor {
        Processor::X86_64 => TargetArch::x86_64,
        Processor::Aarch64 => TargetArch::aarch64,
    };
    let refuse = SeccompAction::Errno(answer.raw_os_error().unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, processor)?.try_into()
}

/// Calls that are caught whatever their arguments, which is what no rule means.
fn all_of(processor: Processor, calls: &[SystemCall]) -> Rules {
    calls.iter().filter_map(|call| Some((call.number(processor)?, Vec::new()))).collect()
}

fn not_permitted(processor: Processor) -> Result<Rules, seccompiler::BackendError> {
    let mut rules = all_of(processor, NOT_PERMITTED);
    let mut catch = |call: SystemCall, caught: Vec<SeccompRule>| {
        rules.extend(call.number(processor).map(|number| (number, caught)));
    };
    // The kernel takes each of these arguments as 32 bits: what stands above them must not decide.
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
    // Programs ask for their own limits by the number 0.
    let of_another = is(0, SeccompCmpOp::Ne, 0)?;
    let to_set = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    catch(LIMITS, vec![SeccompRule::new(vec![of_another, to_set])?]);
    for call in SOCKETS {
        let other = FAMILIES.map(|family| is(0, SeccompCmpOp::Ne, family));
        catch(call, vec![SeccompRule::new(other.into_iter().collect::<Result<_, _>>()?)?]);
    }
    Ok(rules)
}

/// Every call above the last that has been judged. Written out, since the library compares numbers
/// only for equality; the processor has been checked by the other filters.
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
