//! The meaning of each key: its type, bounds and default, and whether it has an effect yet.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::types::{
    BranchPattern, Mode, OnLimit, PerRepository, PermissionLevel, ProviderName, Resources, Secret,
    Template, TemplateName,
};

use super::accounts;
use super::error::ConfigError;
use super::models::models;
use super::network::network;
use super::people::people_login;
use super::provider::{ProviderSchema, ProviderSection, ProviderSettings};
use super::reader::{ConfigReader, list_of, text_of};
use super::repositories::repositories;
use super::source::{Sources, Value};
use super::sync::sync;
use super::workload::{self, TemplateContext};
use super::{
    Auth, Config, GitHub, LISTEN_DEFAULT, LifecycleConfig, Quota, RetentionConfig, SandboxLogs,
    Server, StepBounds, StoredApp, Triggers,
};
use super::{agents, github};

/// Reads all sections; also a sentence for each key that has no effect yet.
pub(super) fn read(
    sources: Sources,
    schemas: &[&dyn ProviderSchema],
) -> Result<(Config, Vec<String>), ConfigError> {
    let data_default = default_data(sources.state_home.as_deref(), sources.home.as_deref());
    let mut reader = ConfigReader::new(sources);
    let r = &mut reader;
    let secrets = workload::secrets(r);
    let mounts = workload::allowed_mounts(r, schemas);
    let (server, admin_token) = (server(r, data_default), admin_token(r));
    let github = github_section(r, &server.data);
    let people = people_login(r, server.public_url.as_deref(), github.login.is_some());
    let auth = Auth { admin_token, github: people };
    let triggers = triggers(r);
    let has_credentials = github.login.is_some();
    let agents = agents::agents(r);
    let sync = sync(r);
    let has_storage = sync.is_some();
    let context =
        TemplateContext { schemas, secrets, mounts, has_credentials, has_storage, agents };
    let mut config = Config {
        server,
        auth,
        accounts: accounts::accounts(r),
        github,
        triggers: triggers.into(),
        lifecycle: lifecycle(r),
        quota: quota(r),
        accounts_in_metrics_max: accounts_in_metrics_max(r),
        retention: retention(r),
        logs: logs(r),
        models: models(r),
        sync,
        templates: templates(r, &context),
        repositories: PerRepository::default(),
        providers: providers(r, schemas),
        secrets: context.secrets,
        agents: context.agents,
        // The last one: the sections above have read them.
        secret_files: r.take_secret_files(),
    };
    let usual = (config.triggers.usual(), config.models.budgets.usual());
    let found = repositories(r, &config.all_templates(), usual, &config.github);
    (config.repositories, config.triggers) = (found.settings, found.triggers);
    config.models.budgets = found.budgets;
    check_working_label(r, &config.github.working_label, &config.triggers);
    let warnings = reader.finish().map_err(ConfigError::Wrong)?;
    Ok((config, warnings))
}

/// The XDG base directory specification: a relative `$XDG_STATE_HOME` counts as unset.
fn default_data(state_home: Option<&str>, home: Option<&str>) -> Option<PathBuf> {
    let absolute = |dir: &&str| Path::new(dir).is_absolute();
    let state = match (state_home.filter(absolute), home.filter(absolute)) {
        (Some(state), _) => PathBuf::from(state),
        (None, Some(home)) => Path::new(home).join(".local/state"),
        (None, None) => return None,
    };
    Some(state.join("issuebox"))
}

fn server(r: &mut ConfigReader, data_default: Option<PathBuf>) -> Server {
    let listen_default = LISTEN_DEFAULT.parse().expect("the default is an address");
    let listen = r.parsed("listen", listen_default, |text| {
        text.parse::<SocketAddr>().map_err(|_| "must be an address and port".to_owned())
    });
    let data = r.path("data", data_default).unwrap_or_else(|| {
        r.trouble("there is no home directory for the data; set data (--data DIR)".to_owned());
        PathBuf::new()
    });
    let public_url = r.parsed("public_url", None, |text| web_address(text).map(Some));
    let mut trusted_proxies = Vec::new();
    for text in r.texts("trusted_proxies", &[]) {
        match text.parse::<IpAddr>() {
            Ok(proxy) => trusted_proxies.push(proxy),
            Err(_) => r.wrong("trusted_proxies", &format!("must be IP addresses, not {text:?}")),
        }
    }
    Server { listen, data, public_url, trusted_proxies }
}

fn admin_token(r: &mut ConfigReader) -> Option<Secret> {
    secret(r, "auth.admin_token", |given| {
        let text = given.text()?;
        if text.trim().is_empty() {
            return Err("is empty: anybody could call the API".to_owned());
        }
        token_of(&text)
    })
}

/// A token goes into a header: visible ASCII without spaces.
pub(super) fn token_of(text: &str) -> Result<Secret, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    if !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("must be visible ASCII characters without spaces".to_owned());
    }
    Ok(Secret::new(text))
}

fn github_section(r: &mut ConfigReader, data: &Path) -> GitHub {
    let webhook_secrets = secret(r, "github.webhook_secrets", |given| match given {
        Given::Inline(Value::Word(word)) => secrets_of(word.split(',')),
        Given::Inline(value) => match list_of(&value, text_of) {
            Some(texts) => secrets_of(texts.iter().map(String::as_str)),
            None => Err("must be a list of texts".to_owned()),
        },
        Given::File(content) => secrets_of(content.trim_end().lines()),
    });
    let bot_user_id = r.number("github.bot_user_id", 0, 0..=u64::MAX);
    let api_url = github::address(r, "github.api_url", "https://api.github.com");
    let configured = github::login(r);
    let stored_app = github::stored_app(r, data, configured.as_ref(), &api_url);
    let login = configured.or_else(|| stored_app.as_ref().map(StoredApp::login));
    let intake = github::intake(r, login.as_ref());
    let web_url = github::address(r, "github.web_url", "https://github.com");
    let repositories = accounts::repositories(r, "github.repositories", &["*"]);
    let webhook_secrets = webhook_secrets.unwrap_or_default();
    let branch = r.parsed("github.branch", BranchPattern::default(), BranchPattern::parse);
    let comments = r.flag("github.comments", true);
    let reactions = r.flag("github.reactions", true);
    let pull_request = github::pull_request(r);
    let publish = github::publish(r);
    let hidden = github::hidden(r);
    let follow_up = github::follow_up(r);
    let on_ci_failure = github::on_ci_failure(r);
    let statuses = r.flag("github.statuses", false);
    let working_label = r.text("github.working_label", "").trim().to_owned();
    GitHub {
        webhook_secrets,
        login,
        stored_app,
        intake,
        bot_user_id,
        api_url,
        web_url,
        repositories,
        branch,
        comments,
        reactions,
        pull_request,
        publish,
        hidden,
        follow_up,
        on_ci_failure,
        statuses,
        working_label,
    }
}

fn secrets_of<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<Secret>, String> {
    let secrets: Vec<&str> = texts.map(str::trim).collect();
    if secrets.is_empty() || secrets.contains(&"") {
        return Err("has an empty secret: anybody could sign with it".to_owned());
    }
    Ok(secrets.into_iter().map(Secret::new).collect())
}

/// The raw form of a secret.
pub(super) enum Given {
    Inline(Value),
    /// The content of its file.
    File(String),
}

impl Given {
    /// The text of a secret that is one.
    pub fn text(self) -> Result<String, String> {
        match self {
            Self::Inline(Value::Text(text) | Value::Word(text)) | Self::File(text) => Ok(text),
            Self::Inline(
                Value::Integer(_)
                | Value::Float(_)
                | Value::Flag(_)
                | Value::List(_)
                | Value::EmptySection
                | Value::Odd(_),
            ) => Err("must be a text".to_owned()),
        }
    }
}

/// Reads a secret from `key` or `key_file`; the source with the higher precedence wins.
pub(super) fn secret<T>(
    r: &mut ConfigReader,
    key: &str,
    parse: impl FnOnce(Given) -> Result<T, String>,
) -> Option<T> {
    let file_key = format!("{key}_file");
    let inline = r.take(key);
    let path = r.path(&file_key, None);
    let inline_rank = r.origin(key).map(|origin| origin.rank());
    let file_rank = r.origin(&file_key).map(|origin| origin.rank());
    if inline_rank.is_some() && inline_rank == file_rank {
        r.wrong(key, &format!("and {file_key} are both set; keep one"));
        return None;
    }
    let (key, given) = match (inline, path) {
        (Some(entry), _) if inline_rank > file_rank => (key, Ok(Given::Inline(entry.value))),
        (_, Some(path)) => {
            let content = r.secret_file(path);
            (file_key.as_str(), content.map(Given::File))
        }
        (_, None) => return None,
    };
    // The error must not contain the value.
    given.and_then(parse).map_err(|needed| r.wrong(key, &needed)).ok()
}

pub(super) fn web_address(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match rest {
        Some(host) if !host.is_empty() && !host.contains(char::is_whitespace) => {
            Ok(text.trim_end_matches('/').to_owned())
        }
        Some(_) | None => Err("must be an address that begins with https:// or http://".into()),
    }
}

/// GitHub's words for an author's relation to a repository.
const ASSOCIATIONS: [&str; 8] = [
    "OWNER",
    "MEMBER",
    "COLLABORATOR",
    "CONTRIBUTOR",
    "FIRST_TIMER",
    "FIRST_TIME_CONTRIBUTOR",
    "MANNEQUIN",
    "NONE",
];

fn triggers(r: &mut ConfigReader) -> Triggers {
    let label = r.text("triggers.label", "agent").trim().to_owned();
    let command = r.parsed("triggers.command", "/issuebox".to_owned(), one_word);
    let opened = r.flag("triggers.opened", false);
    let permission =
        r.parsed("triggers.permission", PermissionLevel::Write, PermissionLevel::parse);
    let key = "triggers.associations";
    let associations: Vec<String> = r
        .texts(key, &["OWNER", "MEMBER", "COLLABORATOR"])
        .iter()
        .map(|word| word.to_ascii_uppercase())
        .collect();
    for word in associations.iter().filter(|word| !ASSOCIATIONS.contains(&word.as_str())) {
        r.wrong(key, &format!("must be among {}, not {word:?}", ASSOCIATIONS.join(", ")));
    }
    Triggers {
        label,
        command,
        opened,
        permission,
        associations,
        bots: r.numbers("triggers.bots"),
        assignee: r.number("triggers.assignee", 0, 0..=u64::MAX),
        unlabel_stops: r.flag("triggers.unlabel_stops", true),
    }
}

/// The word of a command; empty for none.
pub(super) fn one_word(text: &str) -> Result<String, String> {
    match text.contains(char::is_whitespace) {
        true => Err("must be one word".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// The label that issues have while their sandbox is at work triggers nowhere.
fn check_working_label(r: &mut ConfigReader, label: &str, triggers: &PerRepository<Triggers>) {
    let label = label.to_lowercase();
    if !label.is_empty() && triggers.all().any(|one| one.label.to_lowercase() == label) {
        let needed = "must not be triggers.label: taking that off stops the sandbox";
        r.wrong("github.working_label", needed);
    }
}

fn lifecycle(r: &mut ConfigReader) -> LifecycleConfig {
    let create = step_bounds(r, "create", 120);
    let start = step_bounds(r, "start", 120);
    let stop = step_bounds(r, "stop", 60);
    let delete = step_bounds(r, "delete", 60);
    let off_or = |seconds: u64| (seconds > 0).then(|| Duration::from_secs(seconds));
    let idle_stop = off_or(r.number("lifecycle.idle_stop_seconds", 1800, 0..=SECONDS_MAX));
    let after_close = r.number("lifecycle.delete_after_close_seconds", 86_400, 0..=SECONDS_MAX);
    let reconcile = r.number("lifecycle.reconcile_seconds", 60, 1..=SECONDS_MAX);
    let ttl = off_or(r.number("lifecycle.ttl_seconds", 0, 0..=SECONDS_MAX));
    LifecycleConfig {
        create,
        start,
        stop,
        delete,
        idle_stop,
        delete_after_close: Duration::from_secs(after_close),
        reconcile: Duration::from_secs(reconcile),
        ttl,
    }
}

/// Longest span, in seconds: ten years.
pub const SECONDS_MAX: u64 = 10 * 366 * 86_400;

fn step_bounds(r: &mut ConfigReader, step: &str, timeout_seconds: u64) -> StepBounds {
    let attempts = r.number(&format!("lifecycle.{step}_attempts"), 3, 1..=100);
    let key = format!("lifecycle.{step}_timeout_seconds");
    let timeout = r.number(&key, timeout_seconds, 1..=86_400);
    StepBounds {
        attempts: u32::try_from(attempts).expect("it is at most 100"),
        timeout: Duration::from_secs(timeout),
    }
}

fn quota(r: &mut ConfigReader) -> Quota {
    let mut number =
        |name: &str, default| r.number(&format!("quota.{name}"), default, 0..=u64::MAX);
    Quota {
        live: number("live", 10),
        live_per_repository: number("live_per_repository", 0),
        live_server: number("live_server", 0),
        runs: number("runs", 20),
        creates_in_flight: number("creates_in_flight", 8),
    }
}

/// Most accounts with series of their own in the metrics: each is a series for every scrape.
const ACCOUNTS_IN_METRICS_MAX: u64 = 200;

fn accounts_in_metrics_max(r: &mut ConfigReader) -> usize {
    let accounts = r.number("metrics.accounts", 0, 0..=ACCOUNTS_IN_METRICS_MAX);
    usize::try_from(accounts).expect("at most 200")
}

/// Deliveries are kept for as long as GitHub may redeliver them. A forgotten GUID would be handled
/// again.
const DELIVERIES_DAYS_MIN: u64 = 3;
/// Longest retention other than for ever, in days: a hundred years.
const DAYS_MAX: u64 = 36_525;

fn retention(r: &mut ConfigReader) -> RetentionConfig {
    let days = |days: u64| (days > 0).then(|| Duration::from_secs(days * 86_400));
    let key = "retention.deliveries_days";
    let deliveries = r.number(key, 30, 0..=DAYS_MAX);
    if (1..DELIVERIES_DAYS_MIN).contains(&deliveries) {
        r.wrong(key, "must be 0 (for ever) or at least 3: GitHub may redeliver for that long");
    }
    let timeline = r.number("retention.timeline_days", 90, 0..=DAYS_MAX);
    let deleted = days(r.number("retention.deleted_days", 365, 0..=DAYS_MAX));
    RetentionConfig { deliveries: days(deliveries), timeline: days(timeline), deleted }
}

/// Largest log, in MiB: more than any disk of today has.
const LOG_MB_MAX: u64 = 1 << 24;

fn logs(r: &mut ConfigReader) -> SandboxLogs {
    let days = r.number("logs.days", 30, 0..=DAYS_MAX);
    let sandbox_mb = r.number("logs.sandbox_mb", 8, 1..=LOG_MB_MAX);
    let total_mb = r.number("logs.total_mb", 1024, 1..=LOG_MB_MAX);
    SandboxLogs {
        age_max: (days > 0).then(|| Duration::from_secs(days * 86_400)),
        sandbox_len_max: sandbox_mb << 20,
        total_len_max: total_mb << 20,
    }
}

fn templates(
    r: &mut ConfigReader,
    context: &TemplateContext<'_>,
) -> BTreeMap<TemplateName, Template> {
    let mut names = r.names_below("templates");
    names.insert("default".to_owned());
    let read = |name: String| {
        let template = template(r, context, &name);
        (template.name.clone(), template)
    };
    names.into_iter().map(read).collect()
}

fn template(r: &mut ConfigReader, context: &TemplateContext<'_>, name: &str) -> Template {
    let key = |part: &str| format!("templates.{name}.{part}");
    let known: Vec<&str> = context.schemas.iter().map(|schema| schema.name()).collect();
    let default = known.first().copied().unwrap_or_default();
    let provider = r.parsed(&key("provider"), default.to_owned(), |text| {
        if !known.contains(&text) {
            return Err(format!("must be {} (there are no others yet)", known.join(" or ")));
        }
        Ok(text.to_owned())
    });
    let mode = r.parsed(&key("mode"), Mode::Strong, |text| match Mode::parse(text) {
        Some(mode) => Ok(mode),
        None => Err("must be strong or fast".to_owned()),
    });
    let cpu = r.fraction(&key("cpu"), 1.0, 0.01..=1024.0);
    let memory_mb = r.number(&key("memory_mb"), 1024, 16..=16_777_216);
    let processes = r.number(&key("processes"), 256, 8..=4_194_304);
    let disk_mb = r.number(&key("disk_mb"), 2048, 16..=1_073_741_824);
    let network = network(r, &key);
    let ports = ports(r, &key("ports"));
    let on_limit = r.parsed(&key("on_limit"), OnLimit::Kill, |text| match text {
        "kill" => Ok(OnLimit::Kill),
        "stop" => Ok(OnLimit::Stop),
        _ => Err("must be kill or stop".to_owned()),
    });
    let workload = workload::workload(r, context, name, &provider, &network).into();
    Template {
        name: TemplateName::trusted(name),
        provider: ProviderName::trusted(provider),
        mode,
        resources: Resources {
            cpu,
            memory_mb,
            processes: u32::try_from(processes).expect("it is below 2^32"),
            disk_mb,
        },
        network,
        ports,
        on_limit,
        workload,
    }
}

/// Most ports of a template: the server connects to each to find out its state.
const PORTS_MAX: usize = 16;

fn ports(r: &mut ConfigReader, key: &str) -> Vec<u16> {
    let mut ports = Vec::new();
    for number in r.numbers(key) {
        match u16::try_from(number) {
            Ok(0) | Err(_) => r.wrong(key, &format!("must be from 1 to 65535, not {number}")),
            Ok(port) if ports.contains(&port) => r.wrong(key, &format!("lists {port} twice")),
            Ok(port) => ports.push(port),
        }
    }
    if ports.len() > PORTS_MAX {
        r.wrong(key, &format!("lists more than {PORTS_MAX}"));
    }
    ports
}

fn providers(
    r: &mut ConfigReader,
    schemas: &[&dyn ProviderSchema],
) -> BTreeMap<ProviderName, ProviderSettings> {
    let read = |schema: &&dyn ProviderSchema| {
        let section = format!("providers.{}", schema.name());
        (ProviderName::trusted(schema.name()), schema.read(&mut ProviderSection::new(r, section)))
    };
    schemas.iter().map(read).collect()
}
