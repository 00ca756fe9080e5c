//! Deliberate bugs, each where it could be made by mistake, so that tests can prove that they would
//! notice it. Only tests can switch one on; in other builds [`on`] is constant and the bug is not
//! compiled in.

/// A bug that breaks a guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A create with an unknown outcome is repeated without an observation.
    AskAgainWithoutLook,
    /// An object that was not found is created again, although a create may still take effect.
    CreateTooSoon,
    /// An object that was not found counts as gone, although a create may still take effect.
    GoneTooSoon,
    /// An observation reflects the time of its answer, not of its request.
    LookShowsItsAnswersTime,
    /// An answer counts whatever attempt it belongs to.
    NoAttemptFence,
    /// A failed observation counts as absence.
    ErrorForAbsence,
    /// An object with our name is deleted, whatever labels it has.
    DeleteByName,
    /// A delete counts as done once it was requested.
    GoneByAsking,
    /// The caller gets its answer before the commit is durable.
    ReplyBeforeCommit,
    /// The provider is called before the commit is durable.
    CallBeforeCommit,
    /// The home's slot is freed when the actor that took it ends.
    #[cfg(test)]
    SlotFreedWithActor,
    /// An activation that ends removes its successor from the directory.
    RemoveByKey,
    /// A retry restarts the attempt numbers at one.
    AttemptResetOnRetry,
    /// Any object with the home's labels is adopted.
    AdoptAnyLabelled,
    /// A delivery counts as a duplicate once it was received.
    DuplicateBySeen,
    /// Passivation ignores messages that are about to arrive.
    PassivationDropsMessages,
    /// Only the first event of an issue claims its names.
    NamesClaimedByFirst,
    /// A successor loads while its predecessor's writes are in flight.
    LoadWithoutWaiting,
    /// A sweep acts on its list without a second observation.
    StaleList,
    /// A sweep acts although it found suspiciously many orphans.
    NoMassGuard,
    /// An observation counts although a call was made in between.
    ObservationBehindCall,
    /// A stop that may have taken effect late is no longer considered after five minutes.
    LateStopForgotten,
    /// A forced delete forgets a create that may still take effect.
    ForceForgetsCreate,
    /// A durable hold has no effect.
    HoldNotInForce,
    /// A failed create that left nothing gets a place of a quota by its delete.
    SlotByDelete,
    /// A transferred issue leaves its repository's quota before that is durable.
    SlotMovesEarly,
    /// The last place of a quota is used twice.
    LastPlaceTwice,
    /// A pending start that is admitted is dropped.
    PendingStartDropped,
    /// What happens on GitHub counts as of its receipt.
    OrderOfArrival,
    /// A transferred issue becomes a new home.
    TransferRekeys,
    /// Two homes of one issue both keep their sandbox.
    MergeKeepsBoth,
    /// A home that is merged into another loses its data.
    MergeForgets,
    /// A provider with another identity is taken for the original one.
    IdentityIgnored,
    /// An event for many issues skips some of them.
    FanOutSkips,
    /// The object of a fast create stays although its record was rejected.
    FastNotUndone,
    /// A new home uses the fast create although its issue may have another home.
    FastOnUncertainHome,
    /// An effect leaves the outbox before it is carried out.
    EffectRemovedFirst,
    /// A call to GitHub whose outcome is unknown is forgotten.
    AskedForgotten,
    /// What is written at GitHub is written again while the first call may still take effect.
    RepeatedInFlight,
    /// What GitHub showed before a call of unknown outcome is taken for what it shows.
    ShownBelieved,
    /// A comment with our marker is taken for ours, whatever account wrote it.
    MarkerAlone,
    /// A pull request that a person closed is not looked for.
    ClosedPullForgotten,
    /// A server that starts forgets that the writing calls of an identity rest.
    RestForgotten,
    /// An agent that cannot be reached counts as gone, and another one begins beside it.
    TwoRunsAtOnce,
    /// An agent that goes on is given the messages again that its session has.
    MessagesGivenAgain,
    /// A run that is cancelled takes along the messages that wait behind it.
    MessagesLostByCancel,
    /// An agent is started before the record says that its run goes on.
    RunBeforeRecord,
    /// A run begins before its issue is verified.
    RunBeforeVerification,
    /// Each attempt of a run begins a session.
    AnotherSession,
    /// A server that takes a process over writes all of its output into the journal.
    OutputWrittenAgain,
    /// What a request to a model reserved is never settled.
    ReservationKept,
    /// A push is judged after it was sent.
    PushJudgedLate,
    /// A delivery does not lack if GitHub says that it arrived.
    #[cfg(test)]
    LogStatusBelieved,
    /// The memory limit can kill PID 1 of a sandbox.
    InWorkGroup,
    /// Processes of a sandbox keep capabilities.
    CapabilitiesKept,
    /// Processes of a sandbox can regain capabilities from a program file.
    BoundingSetKept,
    /// A set-uid program gives privileges in a sandbox.
    PrivilegesGained,
    /// No system call is filtered in a sandbox.
    CallsNotFiltered,
    /// One of the system call filters is missing.
    FilterMissing,
    /// A root server's sandbox runs as the host's root.
    HostRootInside,
    /// A root server's sandbox has the group of the host's root.
    HostGroupInside,
    /// Processes of a sandbox are root in it.
    RootInside,
    /// Processes of a sandbox have root's group in it.
    RootGroupInside,
    /// Device files created in a sandbox open devices.
    DevicesOpened,
    /// A sandbox can change the host's programs.
    ProgramsWritable,
    /// A sandbox can read the entries of `/proc` that show others.
    ProcUncovered,
    /// The host's set-uid programs work in a sandbox.
    SetUidHonoured,
    /// A sandbox can change its root file system.
    RootWritable,
    /// A sandbox can inspect PID 1.
    DumpableInside,
    /// PID 1 survives its launcher.
    OutlivesLauncher,
    /// A sandbox has the host's network although its template does not allow it.
    NetworkShared,
    /// A sandbox inherits a file descriptor of the launcher.
    DescriptorInherited,
    /// Synced data of a workspace may not be on the disk.
    BarriersOff,
    /// A created object that is found running counts as up without a cold start.
    AdoptedWithoutColdStart,
    /// What comes before a stop counts as done although the stop was not asked for.
    FarewellWithoutCall,
    /// The store accepts a write whatever version it follows.
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
