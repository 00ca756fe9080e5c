//! What kind of history a seed is: how many issues, which faults, what provider.

use std::collections::HashMap;
use std::time::Duration;

use super::chance::Chance;
use super::hooks::HookWeather;
use super::runs::RunWeather;
use crate::engine::Quotas;
use crate::issue::event::ProviderRules;
use crate::issue::{GithubRules, Rules, StepRules};
use crate::types::{
    Mode, Network, OnLimit, ProviderName, PullRequestMode, Resources, Template, TemplateName,
};

/// How long one look at a provider may take, as the lifecycle has it.
pub const LOOK_TIME_MAX: Duration = Duration::from_secs(30);
/// The longest that a provider asks to be left alone.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);

/// The faults and the pace of one history. Rates are in thousandths.
#[derive(Clone, Debug)]
pub struct Weather {
    /// No fault strikes any more.
    pub calm: bool,
    /// How many GitHub issues there are.
    pub issues: u64,
    /// How many things happen before it becomes calm.
    pub actions: u64,
    /// Provider calls that go wrong in some way.
    pub provider_faults: u64,
    /// Commits that fail, alone or with their batch.
    pub store_faults: u64,
    /// Commits that are not taken in, since too many wait.
    pub overload: u64,
    /// Lists that are out of date, not complete, or fail.
    pub bad_lists: u64,
    /// A provider shows sweeps nothing of what it has, for a while.
    pub forgetful: bool,
    /// How many callers in a thousand ask for fast mode; with all, templates are in it too.
    pub fast: u64,
    /// Holds are put on and released.
    pub holds: bool,
    /// How many live sandboxes there may be.
    pub quotas: Quotas,
    /// Reads that fail.
    pub read_faults: u64,
    /// Whether commits and reads take seconds instead of milliseconds now and then.
    pub slow_store: bool,
    /// Whether calls and their answers often take as long as they may.
    pub slow_providers: bool,
    /// Polls of a task that are put off, so that another comes before it.
    pub jitter: u64,
    pub crashes: bool,
    pub panics: bool,
    pub jumps: bool,
    /// A provider or the store is out of order for a while.
    pub outages: bool,
    /// Most creates that go wrong have only lost their answer, and land late.
    pub losing: bool,
    /// Objects are killed, stopped and made behind our back.
    pub outsiders: bool,
    /// Idle actors are asked to end all the time.
    pub passivation: bool,
    /// Programs and people use the API as well; else only GitHub speaks.
    pub callers: bool,
    /// After how long idle sandboxes are stopped, those of closed issues deleted, and all deleted.
    pub idle_stop: Option<Duration>,
    pub delete_after_close: Duration,
    pub ttl: Option<Duration>,
    /// Bounds on every kind of step.
    pub step: StepRules,
    pub providers: Vec<ProviderWeather>,
    /// Some deletes are by force.
    pub force: bool,
    /// Issues are transferred between two repositories.
    pub transfers: bool,
    /// Writes that fail by which a live sandbox takes its slot to another repository.
    pub moves_fail: u64,
    /// Many ask for fast mode at once, of a store that refuses much.
    pub hasty: bool,
    /// Another provider answers in place of one for a while.
    pub impostors: bool,
    /// How many creates a provider is asked for at once; 0 is as many as come.
    pub creates_in_flight: u64,
    /// Things happen to repositories and to the installation.
    pub scope_events: bool,
    /// A provider or the server is away for a long time.
    pub absences: bool,
    /// Programs of another account ask for sandboxes of the same issues.
    pub accounts: bool,
    /// What the server says on issues, and how that goes; `None` if it has no credentials.
    pub said: Option<SaidWeather>,
    /// Agents work in the sandboxes; `None` if there are none.
    pub runs: Option<RunWeather>,
    /// The templates have hooks; `None` if they have not.
    pub hooks: Option<HookWeather>,
}

/// What it is like to say something on issues.
#[derive(Clone, Debug)]
pub struct SaidWeather {
    /// Calls that go wrong in some way.
    pub faults: u64,
    /// Lists lack what was made just before.
    pub lists_lag: bool,
    /// Comments get other ids when their issue is transferred.
    pub renumbers: bool,
    /// How often people do something, beside what else happens.
    pub people: u64,
}

/// What one provider is like.
#[derive(Clone, Debug)]
pub struct ProviderWeather {
    pub name: ProviderName,
    pub rules: ProviderRules,
}

impl Weather {
    pub fn new(seed: u64, chance: &mut Chance) -> Self {
        let providers = ["first", "second"].map(|name| ProviderWeather {
            name: ProviderName::trusted(name),
            rules: ProviderRules {
                names_enforced: chance.permille(450),
                late_effect_window: Duration::from_millis(chance.between(0, 20_000)),
                dies_with_server: chance.permille(200),
            },
        });
        let callers = chance.permille(800);
        let forgetful = chance.permille(150);
        let mut weather = Self {
            calm: false,
            // What is too much at once takes many.
            issues: if forgetful { chance.between(5, 8) } else { chance.between(1, 4) },
            actions: chance.between(10, 70),
            provider_faults: *chance.pick(&[0, 50, 200, 200, 500]),
            bad_lists: *chance.pick(&[0, 100, 400, 700]),
            forgetful,
            holds: !forgetful && chance.permille(250),
            quotas: Quotas {
                server: if forgetful { 0 } else { *chance.pick(&[0, 0, 0, 0, 1, 2]) },
                ..Quotas::default()
            },
            fast: *chance.pick(&[0, 0, 300, 1000]),
            store_faults: *chance.pick(&[0, 0, 10, 50]),
            overload: *chance.pick(&[0, 0, 20, 100]),
            read_faults: *chance.pick(&[0, 0, 0, 10]),
            slow_store: chance.permille(300),
            slow_providers: chance.permille(300),
            jitter: *chance.pick(&[0, 100, 300]),
            crashes: chance.permille(600),
            panics: chance.permille(300),
            jumps: chance.permille(200),
            outages: chance.permille(200),
            losing: chance.permille(300),
            outsiders: chance.permille(350),
            passivation: chance.permille(400),
            callers,
            idle_stop: chance.permille(300).then(|| Duration::from_secs(chance.between(60, 900))),
            delete_after_close: Duration::from_secs(chance.between(0, 900)),
            ttl: (callers && chance.permille(100))
                .then(|| Duration::from_secs(chance.between(60, 900))),
            step: StepRules {
                attempts: u32::try_from(chance.between(1, 4)).expect("a small number"),
                timeout: Duration::from_secs(chance.between(5, 30)),
            },
            providers: providers.into(),
            force: false,
            transfers: false,
            moves_fail: 0,
            scope_events: false,
            hasty: false,
            impostors: false,
            creates_in_flight: 0,
            absences: false,
            accounts: false,
            said: SaidWeather::of(seed),
            runs: RunWeather::of(seed),
            hooks: HookWeather::of(seed),
        };
        weather.add_extremes(chance);
        // Every other seed keeps the history that it had before there were these.
        if !seed.is_multiple_of(2) || weather.said.is_some() || weather.runs.is_some() {
            weather.add_later_extremes(&mut Chance::new(!seed));
        }
        weather.suit_agents(seed);
        weather
    }

    /// Where agents work, the sandboxes of half of the providers end with the server.
    fn suit_agents(&mut self, seed: u64) {
        let mut chance = Chance::new(seed ^ 0x5a17);
        let providers = self.providers.iter_mut().filter(|_| self.runs.is_some());
        providers.for_each(|one| one.rules.dies_with_server = chance.permille(500));
    }

    /// What makes a history rare, on top of the usual weather.
    fn add_extremes(&mut self, chance: &mut Chance) {
        let (callers, forgetful) = (self.callers, self.forgetful);
        self.force = callers && chance.permille(250);
        if self.force && chance.permille(500) {
            // What is given up may still come.
            (self.losing, self.provider_faults) = (true, 500);
            self.providers[0].rules.names_enforced = false;
        }
        if !forgetful {
            self.quotas.account = *chance.pick(&[0, 0, 0, 0, 1, 2]);
            self.quotas.repository = *chance.pick(&[0, 0, 0, 0, 1, 2]);
        }
        self.transfers = !forgetful && chance.permille(if callers { 200 } else { 500 });
        if forgetful {
            // What is too much at once must be settled at once.
            self.actions += 30;
            self.provider_faults = self.provider_faults.min(50);
            self.crashes &= chance.permille(300);
        }
        self.hasty = callers && !forgetful && chance.permille(120);
        if self.hasty {
            self.make_hasty();
        }
        self.impostors = !forgetful && chance.permille(200);
        self.creates_in_flight = *chance.pick(&[0, 0, 0, 1, 2]);
        self.scope_events = !forgetful && chance.permille(200);
    }

    fn make_hasty(&mut self) {
        (self.hasty, self.fast, self.jitter) = (true, 1000, 300);
        (self.store_faults, self.overload, self.slow_store) = (150, 50, true);
        self.providers[0].rules.names_enforced = true;
    }

    /// The same with chance of its own, so that the histories of other seeds stay what they were.
    fn add_later_extremes(&mut self, chance: &mut Chance) {
        self.absences = chance.permille(250);
        self.accounts = self.callers && chance.permille(250);
        if self.absences && chance.permille(500) {
            // What is asked takes effect when the answer is not waited for any more.
            (self.losing, self.provider_faults) = (true, 500);
        }
        if self.callers && !self.forgetful && chance.permille(80) {
            self.make_hasty();
        }
        if chance.permille(150) {
            // All at once.
            self.scope_events |= !self.forgetful;
            self.transfers |= !self.forgetful;
            self.force |= self.callers;
            let quotas = &mut self.quotas;
            for quota in [&mut quotas.account, &mut quotas.repository] {
                if !self.forgetful {
                    *quota = *chance.pick(&[0, 1, 2]);
                }
            }
        }
        if self.transfers && self.quotas.repository > 0 {
            self.moves_fail = 400;
        }
    }

    /// A fault of this rate strikes now.
    pub fn strikes(&self, chance: &mut Chance, permille: u64) -> bool {
        !self.calm && chance.permille(permille)
    }

    pub fn templates(&self) -> Vec<Template> {
        let template = |(name, provider): (&str, &ProviderWeather)| Template {
            name: TemplateName::trusted(name),
            provider: provider.name.clone(),
            mode: if self.fast == 1000 { Mode::Fast } else { Mode::Strong },
            resources: Resources { cpu: 1.0, memory_mb: 64, processes: 8, disk_mb: 64 },
            network: Network::None,
            ports: Vec::new(),
            on_limit: OnLimit::Kill,
            workload: crate::types::Workload {
                agent: self.runs.as_ref().map(RunWeather::agent),
                hooks: self.hooks.as_ref().map(|_| HookWeather::hooks()).unwrap_or_default(),
                ..Default::default()
            }
            .into(),
        };
        ["default", "other"].into_iter().zip(&self.providers).map(template).collect()
    }

    pub fn rules(&self) -> Rules {
        let of_provider = |provider: &ProviderWeather| (provider.name.clone(), provider.rules);
        let templates = self.templates();
        Rules {
            github: self.said.as_ref().map(|_| GithubRules {
                comments: true,
                reactions: true,
                pull_request: PullRequestMode::Draft,
                statuses: true,
                working_label: true,
            }),
            create: self.step,
            start: self.step,
            stop: self.step,
            delete: self.step,
            idle_stop: self.idle_stop,
            delete_after_close: self.delete_after_close,
            ttl: self.ttl,
            trigger_label: "agent".to_owned().into(),
            repositories: Default::default(),
            default_template: templates[0].clone(),
            providers: self.providers.iter().map(of_provider).collect::<HashMap<_, _>>(),
        }
    }

    /// The longest that a phase may last in which something is under way, as long as nothing
    /// disturbs: every try with all the time it may take, then the same for what they left.
    pub fn phase_time_max(&self) -> Duration {
        let settle = self.providers.iter().map(|provider| provider.rules.late_effect_window).max();
        let travel = Duration::from_secs(20);
        let round = self.step.timeout
            + LOOK_TIME_MAX * 2
            + settle.unwrap_or_default()
            + crate::issue::state::ANSWER_GRACE
            + RETRY_AFTER_MAX
            + travel
            + self.hooks.as_ref().map(|_| HookWeather::time_max()).unwrap_or_default();
        round * (self.step.attempts + 1) * 2
    }
}
