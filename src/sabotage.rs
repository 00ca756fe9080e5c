//! Deliberate bugs, each at the spot where it would be made by mistake, so that tests can prove
//! that they would be noticed. Nothing but a test can switch one on: elsewhere the question is a
//! constant, and the bug is not compiled in.

/// A bug that breaks the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A create whose outcome is unknown is asked again without a look.
    AskAgainWithoutLook,
    /// Nothing was found, so it is made again, although a create may still land.
    CreateTooSoon,
    /// Nothing was found, so it is gone, although a create may still land.
    GoneTooSoon,
    /// A look shows what is there when it is answered, not when it was asked.
    LookShowsItsAnswersTime,
    /// An answer counts whatever attempt it belongs to.
    NoAttemptFence,
    /// A look that failed has found nothing.
    ErrorForAbsence,
    /// Whatever has our name is ours to delete, whosever labels it carries.
    DeleteByName,
    /// A delete is done once it was asked for.
    GoneByAsking,
    /// The caller is answered before the commit is durable.
    ReplyBeforeCommit,
    /// The provider is asked before the commit is durable.
    CallBeforeCommit,
    /// The home's slot is freed with the actor that asked.
    #[cfg(test)]
    SlotFreedWithActor,
    /// An activation that ends removes whichever has its home.
    RemoveByKey,
    /// A retry counts its attempts from one again.
    AttemptResetOnRetry,
    /// Any object with the home's labels is adopted.
    AdoptAnyLabelled,
    /// A delivery is a duplicate once it was seen.
    DuplicateBySeen,
    /// Passivation does not look whether somebody is about to speak.
    PassivationDropsMessages,
    /// Only the first event of an issue claims its names.
    NamesClaimedByFirst,
    /// A successor loads while its predecessor's writes are still on their way.
    LoadWithoutWaiting,
    /// A sweep acts on its list, without a second look.
    StaleList,
    /// A sweep finds too much at once and acts on it all the same.
    NoMassGuard,
    /// A sight counts although a call was asked in between.
    ObservationBehindCall,
    /// What a create that was given up by force may still bring forth is forgotten.
    ForceForgetsCreate,
    /// A hold is durable and not in force.
    HoldNotInForce,
    /// The last place under a quota is given twice.
    LastPlaceTwice,
    /// A wish that can be granted is dropped.
    PendingStartDropped,
    /// A transferred issue is another one.
    TransferRekeys,
    /// Of two homes of one issue both keep their sandbox.
    MergeKeepsBoth,
    /// What a home knows is forgotten when it gives way.
    MergeForgets,
    /// A provider that is somebody else is taken for the one that it was.
    IdentityIgnored,
    /// What concerns many issues is not told to each.
    FanOutSkips,
    /// What a fast create made stays where its record is refused.
    FastNotUndone,
    /// A new home is fast although somebody may have given its issue another one.
    FastOnUncertainHome,
    /// PID 1 of a sandbox can be ended by the limit on its memory.
    InWorkGroup,
    /// What runs in a sandbox keeps capabilities.
    CapabilitiesKept,
    /// What runs in a sandbox could get back capabilities from a program's file.
    BoundingSetKept,
    /// A set-uid program gives privileges to what runs in a sandbox.
    PrivilegesGained,
    /// Nothing in a sandbox is kept from any system call.
    CallsNotFiltered,
    /// One of the filters of system calls is left out.
    FilterMissing,
    /// A sandbox of a server that runs as root is the host's root.
    HostRootInside,
    /// A sandbox of a server that runs as root has the group of the host's root.
    HostGroupInside,
    /// What runs in a sandbox is root there.
    RootInside,
    /// What runs in a sandbox has root's group there.
    RootGroupInside,
    /// Device files that are made inside open devices.
    DevicesOpened,
    /// The host's programs can be changed from inside.
    ProgramsWritable,
    /// Set-uid programs of the host's count inside.
    SetUidHonoured,
    /// The root of what a sandbox sees can be changed from inside.
    RootWritable,
    /// PID 1 can be looked into.
    DumpableInside,
    /// PID 1 lives on where its launcher is killed.
    OutlivesLauncher,
    /// A sandbox has the host's network without its template saying so.
    NetworkShared,
    /// A descriptor of the launcher stays open inside.
    DescriptorInherited,
    /// What is synced in a workspace need not be on the disk.
    BarriersOff,
    /// The store takes a write whatever version it follows.
    #[cfg(test)]
    NoVersionFence,
}

/// Whether a bug is switched on.
#[cfg(not(test))]
pub(crate) const fn on(_: Bug) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Whether a bug is switched on, for this thread.
#[cfg(test)]
pub(crate) fn on(bug: Bug) -> bool {
    ACTIVE.get() == Some(bug)
}

/// Switches a bug on for this thread while something runs on it.
#[cfg(test)]
pub(crate) fn with<T>(bug: Bug, run: impl FnOnce() -> T) -> T {
    ACTIVE.set(Some(bug));
    let result = run();
    ACTIVE.set(None);
    result
}
