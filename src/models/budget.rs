//! Whether a request may be paid for: budgets, what was spent of them, and what is reserved.
//!
//! A request reserves its worst case before it goes out. It fits if that, all that others reserved
//! and all that was spent are within each budget. One request may go beyond: the only one in
//! flight, while anything is left. So a budget is exceeded by at most what one request reserved, and the
//! last cent can be used. A request that does not fit waits for those in flight, which may cost less
//! than they reserved. It is refused once a budget is spent.

use std::fmt;

use crate::types::{ModelBudgets, Money};

/// What a budget is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetScope {
    /// One run.
    Run,
    /// One issue.
    Issue,
    /// One account, one day.
    AccountDay,
}

/// What is gone of one budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetUse {
    /// What was spent, and what was reserved before a crash.
    pub spent: Money,
    /// What requests in flight reserved.
    pub reserved: Money,
}

/// What is gone of each budget that a request must be paid from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetUses {
    /// Of its run's.
    pub run: BudgetUse,
    /// Of its issue's.
    pub issue: BudgetUse,
    /// Of its account's for the day.
    pub account_day: BudgetUse,
}

/// Whether a request may be paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetVerdict {
    /// It may go out.
    Granted,
    /// It fits once those in flight cost less than they reserved.
    Waits,
    /// A budget is spent.
    UsedUp(BudgetUsedUp),
}

/// A budget that is spent. Prints as a sentence for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetUsedUp {
    /// What it is for.
    pub scope: BudgetScope,
    /// What was spent.
    pub spent: Money,
    /// The budget.
    pub limit: Money,
}

impl fmt::Display for BudgetUsedUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scope, spent, limit } = self;
        let of = match scope {
            BudgetScope::Run => "Budget of this run",
            BudgetScope::Issue => "Budget of this issue",
            BudgetScope::AccountDay => "Budget of this account for today",
        };
        write!(f, "{of} is used up: {spent} of {limit}; an operator can raise it")
    }
}

/// Judges a request whose worst case costs `worst`.
pub fn judge(budgets: &ModelBudgets, uses: &BudgetUses, worst: Money) -> BudgetVerdict {
    let all = [
        (BudgetScope::Run, budgets.run, uses.run),
        (BudgetScope::Issue, budgets.issue, uses.issue),
        (BudgetScope::AccountDay, budgets.account_per_day, uses.account_day),
    ];
    let limited = || all.into_iter().filter(|(_, limit, _)| *limit != Money::ZERO);
    if let Some((scope, limit, gone)) = limited().find(|(_, limit, gone)| gone.spent >= *limit) {
        return BudgetVerdict::UsedUp(BudgetUsedUp { scope, spent: gone.spent, limit });
    }
    let fits = |(_, limit, gone): (BudgetScope, Money, BudgetUse)| {
        gone.reserved == Money::ZERO || gone.spent + gone.reserved + worst <= limit
    };
    if limited().all(fits) { BudgetVerdict::Granted } else { BudgetVerdict::Waits }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dollars(amount: f64) -> Money {
        Money::from_dollars(amount).expect("an amount")
    }

    fn spent(amount: f64) -> BudgetUse {
        BudgetUse { spent: dollars(amount), reserved: Money::ZERO }
    }

    #[test]
    fn the_words_name_the_budget_and_both_amounts() {
        let budgets = ModelBudgets { run: dollars(5.0), issue: dollars(5.0), ..Default::default() };
        let uses = BudgetUses { run: spent(4.0), issue: spent(5.004), account_day: spent(900.0) };
        let BudgetVerdict::UsedUp(used_up) = judge(&budgets, &uses, Money::ZERO) else {
            panic!("it is spent")
        };
        let words = "Budget of this issue is used up: $5.00 of $5.00; an operator can raise it";
        assert_eq!(used_up.to_string(), words);
    }

    #[test]
    fn one_request_may_take_the_last_cent_and_others_wait_for_it() {
        let budgets = ModelBudgets { account_per_day: dollars(1.0), ..Default::default() };
        let of = |spent: f64, reserved: f64| BudgetUses {
            account_day: BudgetUse { spent: dollars(spent), reserved: dollars(reserved) },
            ..Default::default()
        };
        let worst = dollars(0.5);
        assert_eq!(judge(&budgets, &of(0.99, 0.0), worst), BudgetVerdict::Granted);
        assert_eq!(judge(&budgets, &of(0.2, 0.3), worst), BudgetVerdict::Granted);
        assert_eq!(judge(&budgets, &of(0.3, 0.3), worst), BudgetVerdict::Waits);
        assert!(matches!(judge(&budgets, &of(1.0, 0.3), worst), BudgetVerdict::UsedUp(_)));
        assert_eq!(judge(&ModelBudgets::default(), &of(99.0, 9.0), worst), BudgetVerdict::Granted);
    }

    proptest! {
        /// Requests come and end in any order; what is counted never exceeds a budget by more than
        /// the worst case of one.
        #[test]
        fn a_budget_is_exceeded_by_at_most_one_request(
            run in 0_u64..200,
            issue in 0_u64..200,
            requests in prop::collection::vec((1_u64..60, 0_u64..60, any::<prop::sample::Index>()), 1..60),
        ) {
            let nano = Money::from_nano_dollars;
            let budgets = ModelBudgets { run: nano(run), issue: nano(issue), account_per_day: Money::ZERO };
            let (mut total, mut flying, mut dearest) = (0, Vec::new(), 0);
            for (worst, actual, which) in requests {
                let reserved: u64 = flying.iter().map(|(worst, _)| *worst).sum();
                let gone = BudgetUse { spent: nano(total), reserved: nano(reserved) };
                let uses = BudgetUses { run: gone, issue: gone, account_day: gone };
                match judge(&budgets, &uses, nano(worst)) {
                    BudgetVerdict::Granted => {
                        dearest = dearest.max(worst);
                        flying.push((worst, actual.min(worst)));
                    }
                    BudgetVerdict::Waits => prop_assert!(!flying.is_empty()),
                    BudgetVerdict::UsedUp(used_up) => prop_assert!(used_up.spent >= used_up.limit),
                }
                if !flying.is_empty() && which.index(2) == 0 {
                    total += flying.swap_remove(which.index(flying.len())).1;
                }
                let end: u64 = total + flying.iter().map(|(_, actual)| *actual).sum::<u64>();
                for limit in [run, issue] {
                    prop_assert!(limit == 0 || end <= limit + dearest, "{end} of {limit}");
                }
            }
        }
    }
}
