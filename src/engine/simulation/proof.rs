//! The proof that the simulation can fail: every deliberate bug is noticed.

use super::{number, run};
use crate::sabotage::{self, Bug};

/// How many seeds are tried, from the one that is known to be near. More would hide that it moved: a
/// bug that none of thousands notices takes half an hour to say so.
const TRIED: u64 = 200;

/// Runs histories with a bug until one of them notices it, beginning with a seed that is known to be
/// near. A change of the world can move it: then `SIM_SEED=0 SIM_SEEDS=2600`, and for what only one in
/// six histories has `SIM_STEP=6`, finds another.
fn is_noticed(bug: Bug, near: u64) {
    let first = number("SIM_SEED").unwrap_or(near);
    let last = first + number("SIM_SEEDS").unwrap_or(TRIED);
    let step = usize::try_from(number("SIM_STEP").unwrap_or(1)).expect("a small number");
    let noticed = sabotage::with(bug, || {
        let mut seeds = (first..last).step_by(step);
        seeds.find_map(|seed| run(seed, false).err().map(|(why, _)| (seed, why)))
    });
    let Some((seed, violation)) = noticed else {
        panic!("{bug:?} is not noticed by the seeds from {first} up to {last}");
    };
    println!("{bug:?} is noticed by seed {seed}: {}", violation.what);
}

macro_rules! noticed {
    ($($name:ident: $bug:ident near $near:literal,)*) => {$(
        #[test]
        fn $name() {
            is_noticed(Bug::$bug, $near);
        }
    )*};
}

noticed! {
    asking_again_without_a_look_is_noticed: AskAgainWithoutLook near 27,
    making_before_a_create_must_have_landed_is_noticed: CreateTooSoon near 557,
    absence_before_a_create_must_have_landed_is_noticed: GoneTooSoon near 166,
    absence_as_of_the_answer_of_a_look_is_noticed: LookShowsItsAnswersTime near 1637,
    a_missing_fence_of_attempts_is_noticed: NoAttemptFence near 13,
    an_error_taken_for_absence_is_noticed: ErrorForAbsence near 0,
    a_delete_by_name_is_noticed: DeleteByName near 45,
    a_delete_confirmed_by_having_asked_is_noticed: GoneByAsking near 0,
    a_reply_before_the_commit_is_noticed: ReplyBeforeCommit near 0,
    a_call_before_the_commit_is_noticed: CallBeforeCommit near 0,
    a_slot_freed_with_its_actor_is_noticed: SlotFreedWithActor near 0,
    a_removal_by_key_is_noticed: RemoveByKey near 17,
    attempts_that_begin_again_with_a_retry_are_noticed: AttemptResetOnRetry near 0,
    the_adoption_of_any_labelled_object_is_noticed: AdoptAnyLabelled near 13,
    a_duplicate_by_having_been_seen_is_noticed: DuplicateBySeen near 0,
    a_passivation_that_drops_messages_is_noticed: PassivationDropsMessages near 0,
    names_claimed_by_the_first_event_alone_are_noticed: NamesClaimedByFirst near 1192,
    a_successor_that_loads_too_soon_is_noticed: LoadWithoutWaiting near 17,
    a_sweep_that_acts_on_its_list_is_noticed: StaleList near 0,
    a_sweep_that_believes_anything_is_noticed: NoMassGuard near 309,
    an_observation_from_before_a_call_is_noticed: ObservationBehindCall near 0,
    a_create_that_is_forgotten_by_force_is_noticed: ForceForgetsCreate near 2314,
    a_hold_that_is_not_in_force_is_noticed: HoldNotInForce near 18,
    a_slot_without_admission_is_noticed: SlotByDelete near 361,
    a_slot_that_moves_before_its_issue_is_noticed: SlotMovesEarly near 505,
    a_last_slot_that_is_given_twice_is_noticed: LastPlaceTwice near 0,
    a_pending_start_that_is_dropped_is_noticed: PendingStartDropped near 0,
    acts_in_their_order_of_arrival_are_noticed: OrderOfArrival near 135,
    a_transfer_that_rekeys_is_noticed: TransferRekeys near 0,
    a_merge_that_keeps_both_is_noticed: MergeKeepsBoth near 587,
    a_merge_that_forgets_is_noticed: MergeForgets near 501,
    an_identity_that_is_ignored_is_noticed: IdentityIgnored near 0,
    a_fan_out_that_skips_an_issue_is_noticed: FanOutSkips near 19,
    a_fast_create_that_is_not_undone_is_noticed: FastNotUndone near 237,
    a_fast_create_of_an_uncertain_home_is_noticed: FastOnUncertainHome near 701,
    an_effect_that_is_removed_before_it_is_carried_out_is_noticed: EffectRemovedFirst near 0,
    a_store_without_a_fence_of_versions_is_noticed: NoVersionFence near 0,
    a_writing_call_that_is_forgotten_is_noticed: AskedForgotten near 86,
    a_look_by_the_marker_alone_is_noticed: MarkerAlone near 680,
    a_rest_that_is_forgotten_is_noticed: RestForgotten near 440,
    a_write_that_is_repeated_in_flight_is_noticed: RepeatedInFlight near 86,
    a_belief_in_what_was_shown_before_is_noticed: ShownBelieved near 5672,
    two_runs_at_once_are_noticed: TwoRunsAtOnce near 1600,
    messages_that_are_given_again_are_noticed: MessagesGivenAgain near 28,
    messages_that_are_lost_by_a_cancel_are_noticed: MessagesLostByCancel near 40,
    a_run_that_is_started_before_its_record_is_noticed: RunBeforeRecord near 136,
    a_run_that_is_started_before_verification_is_noticed: RunBeforeVerification near 4,
    a_run_that_goes_on_with_another_session_is_noticed: AnotherSession near 4,
    output_that_is_written_again_is_noticed: OutputWrittenAgain near 76,
    an_adoption_without_a_cold_start_is_noticed: AdoptedWithoutColdStart near 22,
    a_farewell_that_counts_without_a_call_is_noticed: FarewellWithoutCall near 2602,
}
