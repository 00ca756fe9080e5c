//! The text of every error, and the precedence of sources.

mod agents;
mod github;
mod hooks;
mod intake;
mod models;
mod people;
mod repositories;
mod repository_file;
mod stored_app;
mod sync;
mod workload;

use super::*;
use crate::types::{Network, OnLimit, WorkloadKey};

/// A provider whose section has one key.
struct Stub(&'static str);

impl ProviderSchema for Stub {
    fn name(&self) -> &'static str {
        self.0
    }

    fn read(&self, section: &mut ProviderSection<'_>) -> ProviderSettings {
        ProviderSettings::new(section.fraction("share", 0.5, 0.0..=1.0))
    }

    fn read_template(&self, section: &mut ProviderSection<'_>) -> BTreeMap<String, String> {
        let size = section.number_if_given("size", 1..=9);
        size.map(|size| ("size".to_owned(), size.to_string())).into_iter().collect()
    }

    fn supports(&self, _key: WorkloadKey) -> Result<(), &'static str> {
        if self.0 == "local" { Err("it has none; remove the key") } else { Ok(()) }
    }
}

const STUBS: [&dyn ProviderSchema; 2] = [&Stub("local"), &Stub("simulated")];

fn load_with(
    file: Option<&str>,
    env: &[(&str, &str)],
    overrides: Overrides,
) -> Result<Loaded, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("issuebox.toml");
    if let Some(text) = file {
        std::fs::write(&path, text).expect("written");
    }
    let env = [("HOME", "/home/mira")].iter().chain(env);
    let env = env.map(|(name, word)| ((*name).to_owned(), (*word).to_owned()));
    Config::load(file.map(|_| path.as_path()), env, overrides, &STUBS)
        .map_err(|error| error.to_string().replace(&format!("{}/", dir.path().display()), ""))
}

fn load(file: &str) -> Result<Loaded, String> {
    load_with(Some(file), &[], Overrides::default())
}

fn load_env(env: &[(&str, &str)]) -> Result<Loaded, String> {
    load_with(None, env, Overrides::default())
}

fn error_of(file: &str) -> String {
    load(file).expect_err("it must be refused")
}

fn env_error_of(env: &[(&str, &str)]) -> String {
    load_env(env).expect_err("it must be refused")
}

#[test]
fn the_defaults_hold_if_nothing_is_set() {
    let loaded = load_env(&[]).expect("the defaults");
    assert_eq!(loaded.warnings, Vec::<String>::new());
    let config = loaded.config;
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8787");
    assert_eq!(config.server.data, Path::new("/home/mira/.local/state/issuebox"));
    assert_eq!(config.auth.admin_token, None);
    assert_eq!(config.triggers.usual().label, "agent");
    assert_eq!(config.triggers.usual().command, "/issuebox");
    assert!(config.github.repositories[0].matches("any/thing"));
    assert_eq!(config.lifecycle.create.attempts, 3);
    assert_eq!(config.lifecycle.create.timeout, Duration::from_secs(120));
    let template = &config.templates[&TemplateName::trusted("default")];
    assert_eq!(template.provider.as_str(), "local");
    assert_eq!(template.resources.memory_mb, 1024);
    let shares: Vec<_> = config.providers.values().map(|settings| settings.get()).collect();
    assert_eq!(shares, [Some(&0.5), Some(&0.5)]);
}

#[test]
fn a_whole_file_is_read() {
    let config = load(
        r#"
        listen = "[::1]:9000"
        data = "state"
        [auth]
        admin_token = "from-the-file"
        [github]
        webhook_secrets = ["new", "old"]
        bot_user_id = 9_007_199_254_740_993
        repositories = ["pear-garden/*"]
        [triggers]
        label = "Robot"
        command = ""
        opened = true
        associations = ["owner", "NONE"]
        bots = [49699333]
        assignee = 5
        unlabel_stops = false
        [lifecycle]
        create_attempts = 0x05
        stop_timeout_seconds = 7
        idle_stop_seconds = 0
        [templates.default]
        provider = "simulated"
        cpu = 2
        [templates."big-one"]
        memory_mb = 4096
        provider = "simulated"
        [providers.simulated]
        share = 0.25
        [quota]
        live = 0
        [retention]
        deliveries_days = 3
        timeline_days = 0
        [logs]
        days = 0
        sandbox_mb = 2
        "#,
    )
    .expect("a good file");
    assert_eq!(config.warnings, Vec::<String>::new());
    let config = config.config;
    assert_eq!(config.server.listen.to_string(), "[::1]:9000");
    assert_eq!(config.server.data, Path::new("state"));
    assert_eq!(config.auth.admin_token, Some(Secret::new("from-the-file")));
    assert_eq!(config.github.bot_user_id, 9_007_199_254_740_993);
    assert_eq!(config.triggers.usual().associations, ["OWNER", "NONE"]);
    assert_eq!(config.triggers.usual().bots, [49_699_333]);
    assert_eq!(config.lifecycle.create.attempts, 5);
    assert_eq!(config.lifecycle.stop.timeout, Duration::from_secs(7));
    assert_eq!(config.lifecycle.idle_stop, None);
    assert_eq!(config.retention.deliveries, Some(Duration::from_secs(3 * 86_400)));
    assert_eq!(config.retention.timeline, None);
    assert_eq!(config.logs.age_max, None);
    assert_eq!((config.logs.sandbox_len_max, config.logs.total_len_max), (2 << 20, 1 << 30));
    assert_eq!(config.templates.len(), 2);
    let simulated = &config.providers[&ProviderName::trusted("simulated")];
    assert_eq!(simulated.get(), Some(&0.25));
    assert_ne!(simulated, &config.providers[&ProviderName::trusted("local")]);
    assert_eq!(simulated.get::<bool>(), None, "only its reader knows the type");
}

#[test]
fn flags_take_precedence_over_the_environment_and_that_over_the_file() {
    let file = "listen = \"127.0.0.1:1\"\ndata = \"file\"\n[triggers]\nlabel = \"file\"";
    let env = [
        ("ISSUEBOX__LISTEN", "127.0.0.1:2"),
        ("ISSUEBOX_LISTEN", "127.0.0.1:3"),
        ("ISSUEBOX_DATA", "env"),
        ("ISSUEBOX__TRIGGERS__LABEL", "env"),
        ("ISSUEBOX__TRIGGERS__BOTS", "1, 2"),
        ("ISSUEBOX__TRIGGERS__OPENED", "true"),
        ("ISSUEBOX__TEMPLATES__DEFAULT__PROVIDER", "simulated"),
        ("ISSUEBOX__TEMPLATES__DEFAULT__CPU", "0.5"),
        ("ISSUEBOX__GITHUB__REPOSITORIES", ""),
    ];
    let overrides = Overrides { listen: None, data: Some("flag".into()) };
    let config = load_with(Some(file), &env, overrides).expect("good").config;
    assert_eq!(config.server.listen.port(), 3, "the short name wins over the long one");
    assert_eq!(config.server.data, Path::new("flag"));
    assert_eq!(config.triggers.usual().label, "env");
    assert_eq!(config.triggers.usual().bots, [1, 2]);
    assert!(config.triggers.usual().opened);
    assert_eq!(config.github.repositories, []);
    let overrides = Overrides { listen: Some("127.0.0.1:4".into()), data: None };
    let config = load_with(Some(file), &env, overrides).expect("good").config;
    assert_eq!(config.server.listen.port(), 4);
}

#[test]
fn the_data_directory_follows_xdg() {
    let data = |env: &[(&str, &str)]| load_env(env).expect("good").config.server.data;
    assert_eq!(data(&[("XDG_STATE_HOME", "/x")]), Path::new("/x/issuebox"));
    let home = Path::new("/home/mira/.local/state/issuebox");
    assert_eq!(data(&[("XDG_STATE_HOME", "relative")]), home);
    let none = Config::load(None, std::iter::empty(), Overrides::default(), &STUBS);
    insta::assert_snapshot!(
        none.expect_err("no home"),
        @"there is no home directory for the data; set data (--data DIR)"
    );
}

#[test]
fn unknown_keys_name_where_they_were_read_and_the_nearest_known_key() {
    insta::assert_snapshot!(
        error_of("[lifecycle]\ncreate_atempts = 3\n"),
        @"issuebox.toml:2: unknown key lifecycle.create_atempts; did you mean lifecycle.create_attempts?"
    );
    insta::assert_snapshot!(
        error_of("label = \"agent\"\n\n[unheard]\n[templates.default]\nmemory = 3"),
        @"
    issuebox.toml:1: unknown key label; did you mean triggers.label?
    issuebox.toml:5: unknown key templates.default.memory; did you mean templates.default.memory_mb?
    issuebox.toml:3: unknown key unheard
    "
    );
    insta::assert_snapshot!(
        env_error_of(&[("ISSUEBOX__TRIGGER__LABEL", "x")]),
        @"environment variable ISSUEBOX__TRIGGER__LABEL: unknown key trigger.label; did you mean triggers.label?"
    );
    insta::assert_snapshot!(
        error_of("[providers.docker]\nhost = \"x\"\n[\"tri.ggers\"]\nx = 1"),
        @r#"
    issuebox.toml:4: unknown key "tri.ggers".x
    issuebox.toml:2: unknown key providers.docker.host
    "#
    );
    insta::assert_snapshot!(
        error_of("github = 1\ntriggers = \"x\""),
        @"
    issuebox.toml:1: github is a section, not a value
    issuebox.toml:2: triggers is a section, not a value
    "
    );
}

#[test]
fn other_programs_variables_are_ignored() {
    let env = [
        ("ISSUEBOX_SERVER", "http://x"),
        ("ISSUEBOX_TOKEN", "t"),
        ("ISSUEBOX_LOG", "debug"),
        ("ISSUEBOX_ANYTHING", ""),
        ("PATH", "/bin"),
    ];
    assert_eq!(load_env(&env), load_env(&[]));
}

#[test]
fn wrong_values_name_the_key_and_what_is_needed() {
    insta::assert_snapshot!(
        error_of(
            r#"
listen = "localhost"
public_url = "box.example.org"
trusted_proxies = "127.0.0.1"
data = ""
[github]
webhook_secrets = "one"
bot_user_id = -1
repositories = ["octo"]
[triggers]
opened = "yes"
command = "/issue box"
associations = ["OWNR"]
bots = ["ripe[bot]"]
label = 1979-05-27
[lifecycle]
create_attempts = 0
create_timeout_seconds = 1.5
ttl_seconds = 99999999999999999999
[templates.default]
provider = "locl"
mode = "quick"
cpu = 0
on_limit = "shrug"
[providers.simulated]
share = 1.5
"#
        ),
        @r#"
    issuebox.toml:2: listen must be an address and port, not "localhost"
    issuebox.toml:5: data must be a path, not ""
    issuebox.toml:3: public_url must be an address that begins with https:// or http://, not "box.example.org"
    issuebox.toml:4: trusted_proxies must be a list of texts, not "127.0.0.1"
    issuebox.toml:7: github.webhook_secrets must be a list of texts
    issuebox.toml:8: github.bot_user_id must be a whole number from 0, not -1
    issuebox.toml:9: github.repositories must have the form owner/name, with * for any part of it, not "octo"
    issuebox.toml:15: triggers.label must be a text, not a date
    issuebox.toml:12: triggers.command must be one word, not "/issue box"
    issuebox.toml:11: triggers.opened must be true or false, not "yes"
    issuebox.toml:13: triggers.associations must be among OWNER, MEMBER, COLLABORATOR, CONTRIBUTOR, FIRST_TIMER, FIRST_TIME_CONTRIBUTOR, MANNEQUIN, NONE, not "OWNR"
    issuebox.toml:14: triggers.bots must be a list of whole numbers, not this list
    issuebox.toml:17: lifecycle.create_attempts must be a whole number from 1 to 100, not 0
    issuebox.toml:18: lifecycle.create_timeout_seconds must be a whole number from 1 to 86400, not 1.5
    issuebox.toml:19: lifecycle.ttl_seconds must be a whole number from 0 to 316224000, not a number out of range
    issuebox.toml:21: templates.default.provider must be local or simulated (there are no others yet), not "locl"
    issuebox.toml:22: templates.default.mode must be strong or fast, not "quick"
    issuebox.toml:23: templates.default.cpu must be a number from 0.01 to 1024, not 0
    issuebox.toml:24: templates.default.on_limit must be kill or stop, not "shrug"
    issuebox.toml:26: providers.simulated.share must be a number from 0 to 1, not 1.5
    "#
    );
}

#[test]
fn wrong_words_in_the_environment_name_the_variable() {
    insta::assert_snapshot!(
        env_error_of(&[
            ("ISSUEBOX_LISTEN", ""),
            ("ISSUEBOX__LIFECYCLE__CREATE_ATTEMPTS", "many"),
            ("ISSUEBOX__TRIGGERS__OPENED", "yes"),
            ("ISSUEBOX__TRIGGERS__BOTS", "1,,2"),
        ]),
        @r#"
    environment variable ISSUEBOX_LISTEN: listen must be an address and port, not ""
    environment variable ISSUEBOX__TRIGGERS__OPENED: triggers.opened must be true or false, not "yes"
    environment variable ISSUEBOX__TRIGGERS__BOTS: triggers.bots must be a list of whole numbers, not "1,,2"
    environment variable ISSUEBOX__LIFECYCLE__CREATE_ATTEMPTS: lifecycle.create_attempts must be a whole number from 1 to 100, not "many"
    "#
    );
    let overrides = Overrides { listen: Some("8787".into()), data: None };
    insta::assert_snapshot!(
        load_with(None, &[], overrides).expect_err("no address"),
        @r#"flag --listen: listen must be an address and port, not "8787""#
    );
}

#[test]
fn a_setting_whose_absence_would_change_the_meaning_is_refused() {
    insta::assert_snapshot!(
        error_of(
            r#"
[templates.default]
provider = "docker"
mode = "fast"
"#
        ),
        @r#"
    issuebox.toml:3: templates.default.provider must be local or simulated (there are no others yet), not "docker"
    "#
    );
}

#[test]
fn a_network_is_read_and_each_wrong_entry_is_named() {
    let of = |text: &str| {
        let loaded = load(&format!("[templates.default]\n{text}")).expect("accepted");
        loaded.config.templates.values().next().expect("one").network.clone()
    };
    assert_eq!(of(""), Network::None);
    assert_eq!(of("network = \"host\""), Network::Host);
    assert_eq!(of("network = \"full\""), Network::Full { private: Vec::new() });
    let listed = of("network = \"allow\"\nallow = [\"Example.org\", \"*.example.org:8443\"]\n\
                     allow_private = [\"10.0.0.5:443\", \"[fd00::5]:443\"]");
    let texts: Vec<String> = listed.hosts().iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["example.org", "*.example.org:8443"]);
    let addresses: Vec<String> = listed.private().iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.0.0.5:443", "[fd00::5]:443"]);
    insta::assert_snapshot!(
        error_of(
            r#"
[templates.default]
network = "some"
[templates.empty]
network = "allow"
[templates.lists]
network = "allow"
allow = ["https://example.org", "example.org/x", "*", "127.1", "2130706433", "a:b", "::1", "a.b"]
allow_private = ["10.0.0.5", "host:80", "10.0.0.5:0", "[fe80::1%2]:80"]
[templates.none]
allow = ["example.org"]
allow_private = ["10.0.0.5:443"]
"#
        ),
        @r#"
    issuebox.toml:3: templates.default.network must be none, allow, full or host, not "some"
    templates.empty.allow is empty, so nothing is reachable: list hosts, as in ["github.com", "*.githubusercontent.com"], or set network = "none"
    issuebox.toml:8: templates.lists.allow must be a host, or host:port, without a scheme or path, not "https://example.org"
    issuebox.toml:8: templates.lists.allow must be a host, or host:port, without a scheme or path, not "example.org/x"
    issuebox.toml:8: templates.lists.allow must have its one * at the beginning, as in *.example.org, not "*"
    issuebox.toml:8: templates.lists.allow must have an IPv4 address as four decimal numbers, not "127.1"
    issuebox.toml:8: templates.lists.allow must have an IPv4 address as four decimal numbers, not "2130706433"
    issuebox.toml:8: templates.lists.allow must be a host, or host:port; an IPv6 address in brackets, not "a:b"
    issuebox.toml:8: templates.lists.allow must be a host, or host:port; an IPv6 address in brackets, not "::1"
    issuebox.toml:9: templates.lists.allow_private must be an address with its port, as in 10.0.0.5:443 or [fd00::5]:443, not "10.0.0.5"
    issuebox.toml:9: templates.lists.allow_private must be an address with its port, as in 10.0.0.5:443 or [fd00::5]:443, not "host:80"
    issuebox.toml:9: templates.lists.allow_private must be an address with its port, as in 10.0.0.5:443 or [fd00::5]:443, not "10.0.0.5:0"
    issuebox.toml:9: templates.lists.allow_private must be an address with its port, as in 10.0.0.5:443 or [fd00::5]:443, not "[fe80::1%2]:80"
    issuebox.toml:11: templates.none.allow needs network = "allow"
    issuebox.toml:12: templates.none.allow_private needs network = "allow" or "full"
    "#
    );
}

#[test]
fn listed_addresses_that_the_proxy_would_reject_are_errors() {
    insta::assert_snapshot!(
        error_of(
            r#"
[templates.default]
network = "allow"
allow = ["1.2.3.4", "10.0.0.5", "10.0.0.6:22", "127.0.0.1:3000", "0.0.0.0", "224.0.0.1", "[::]", "[ff02::1]",
  "169.254.169.254", "[fd00:ec2::254]", "[::ffff:1.2.3.4]", "[::ffff:10.0.0.5]:80", "[2002:7f00:1::]"]
allow_private = ["10.0.0.5:80", "10.0.0.6:443", "127.0.0.2:3000", "169.254.169.254:80", "0.0.0.0:80", "[fe80::1]:80",
  "[::ffff:10.0.0.7]:443", "255.255.255.255:1", "1.2.3.4:5"]
"#
        ),
        @r#"
    issuebox.toml:4: templates.default.allow has "10.0.0.6:22", which is not public (a private network): list "10.0.0.6:22" in allow_private instead
    issuebox.toml:4: templates.default.allow has "127.0.0.1:3000", which is not public (loopback): list "127.0.0.1:3000" in allow_private instead
    issuebox.toml:4: templates.default.allow has "0.0.0.0", which no sandbox may ever reach (an unspecified address): remove it
    issuebox.toml:4: templates.default.allow has "224.0.0.1", which no sandbox may ever reach (a multicast address): remove it
    issuebox.toml:4: templates.default.allow has "[::]", which no sandbox may ever reach (an unspecified address): remove it
    issuebox.toml:4: templates.default.allow has "[ff02::1]", which no sandbox may ever reach (a multicast address): remove it
    issuebox.toml:4: templates.default.allow has "169.254.169.254", which no sandbox may ever reach (a link-local address): remove it
    issuebox.toml:4: templates.default.allow has "[fd00:ec2::254]", which no sandbox may ever reach (a cloud's metadata service): remove it
    issuebox.toml:4: templates.default.allow has "[::ffff:1.2.3.4]", which is another form of 1.2.3.4: use that one
    issuebox.toml:4: templates.default.allow has "[::ffff:10.0.0.5]:80", which is another form of 10.0.0.5: use that one
    issuebox.toml:4: templates.default.allow has "[2002:7f00:1::]", which no sandbox may ever reach (a tunnel to an IPv4 address): remove it
    issuebox.toml:6: templates.default.allow_private has "169.254.169.254:80", which no sandbox may ever reach (a link-local address): remove it
    issuebox.toml:6: templates.default.allow_private has "0.0.0.0:80", which no sandbox may ever reach (an unspecified address): remove it
    issuebox.toml:6: templates.default.allow_private has "[fe80::1]:80", which no sandbox may ever reach (a link-local address): remove it
    issuebox.toml:6: templates.default.allow_private has "[::ffff:10.0.0.7]:443", which is another form of 10.0.0.7: use that one
    issuebox.toml:6: templates.default.allow_private has "255.255.255.255:1", which no sandbox may ever reach (the broadcast address): remove it
    "#
    );
}

#[test]
fn deliveries_are_kept_for_as_long_as_github_may_redeliver_them() {
    let days = |n: u32| load(&format!("[retention]\ndeliveries_days = {n}"));
    let kept = days(0).expect("for ever").config.retention;
    assert_eq!((kept.deliveries, kept.timeline), (None, Some(Duration::from_secs(90 * 86_400))));
    insta::assert_snapshot!(
        error_of("[retention]\ndeliveries_days = 2\ntimeline_days = 40_000"),
        @"
    issuebox.toml:2: retention.deliveries_days must be 0 (for ever) or at least 3: GitHub may redeliver for that long
    issuebox.toml:3: retention.timeline_days must be a whole number from 0 to 36525, not 40000
    "
    );
}

#[test]
fn keys_without_an_effect_are_warned_of() {
    let loaded = load(
        r#"
public_url = "https://box.example.org/"
trusted_proxies = ["127.0.0.1"]
[github]
api_url = "https://git.example.org/api/v3"
web_url = "https://git.example.org"
[templates.default.git]
clone = "full"
[lifecycle]
idle_stop_seconds = 60
delete_after_close_seconds = 60
reconcile_seconds = 60
ttl_seconds = 60
[quota]
live = 1
live_per_repository = 1
live_server = 1
creates_in_flight = 1
[templates.default]
cpu = 1.0
memory_mb = 1024
processes = 256
disk_mb = 2048
ports = [8080]
on_limit = "stop"
"#,
    )
    .expect("accepted");
    assert_eq!(loaded.config.server.public_url.as_deref(), Some("https://box.example.org"));
    assert_eq!(loaded.config.templates.values().next().expect("one").on_limit, OnLimit::Stop);
    assert_eq!(loaded.config.templates.values().next().expect("one").ports, [8080]);
    let dir = loaded.warnings[0].split("issuebox.toml").next().unwrap_or_default().to_owned();
    insta::assert_snapshot!(loaded.warnings.join("\n").replace(&dir, ""), @"
    issuebox.toml:8: templates.default.git.clone has no effect without credentials in [github]: nothing is checked out
    ");
}

#[test]
fn each_invalid_port_is_named() {
    let many: Vec<String> = (1..=17).map(|port| port.to_string()).collect();
    let text = format!(
        "[templates.default]\nports = [0, 65536, 80, 80]\n[templates.many]\nports = [{}]",
        many.join(", ")
    );
    insta::assert_snapshot!(error_of(&text), @"
    issuebox.toml:2: templates.default.ports must be from 1 to 65535, not 0
    issuebox.toml:2: templates.default.ports must be from 1 to 65535, not 65536
    issuebox.toml:2: templates.default.ports lists 80 twice
    issuebox.toml:4: templates.many.ports lists more than 16
    ");
}

#[test]
fn empty_and_doubled_secrets_are_refused_without_printing_them() {
    insta::assert_snapshot!(
        env_error_of(&[("ISSUEBOX_ADMIN_TOKEN", ""), ("ISSUEBOX_WEBHOOK_SECRET", "hush-hush,")]),
        @"
    environment variable ISSUEBOX_ADMIN_TOKEN: auth.admin_token is empty: anybody could call the API
    environment variable ISSUEBOX_WEBHOOK_SECRET: github.webhook_secrets has an empty secret: anybody could sign with it
    "
    );
    insta::assert_snapshot!(
        error_of(
            "[auth]\nadmin_token = \"hush hush\"\n[github]\nwebhook_secrets = []"
        ),
        @"
    issuebox.toml:2: auth.admin_token must be visible ASCII characters without spaces
    issuebox.toml:4: github.webhook_secrets has an empty secret: anybody could sign with it
    "
    );
    insta::assert_snapshot!(
        error_of("[auth]\nadmin_token = \"hush-hush\"\nadmin_token_file = \"/nowhere\""),
        @"issuebox.toml:2: auth.admin_token and auth.admin_token_file are both set; keep one"
    );
    insta::assert_snapshot!(
        error_of("[auth]\nadmin_token_file = \"/nowhere/at/all\"\n[github]\nwebhook_secrets = [1]"),
        @"
    issuebox.toml:2: auth.admin_token_file cannot be read from /nowhere/at/all: No such file or directory (os error 2)
    issuebox.toml:4: github.webhook_secrets must be a list of texts
    "
    );
}

#[test]
fn secrets_are_read_from_files_and_the_environment_takes_precedence() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("secrets");
    std::fs::write(&path, "new\nold\n").expect("written");
    let file = format!("[github]\nwebhook_secrets_file = {path:?}");
    let secrets = |loaded: Result<Loaded, String>| {
        let secrets = loaded.expect("good").config.github.webhook_secrets;
        secrets.iter().map(|secret| secret.expose().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(secrets(load(&file)), ["new", "old"]);
    let env = [("ISSUEBOX_WEBHOOK_SECRET", "theirs")];
    assert_eq!(secrets(load_with(Some(&file), &env, Overrides::default())), ["theirs"]);
    let text = path.display().to_string();
    let env = [("ISSUEBOX__GITHUB__WEBHOOK_SECRETS_FILE", text.as_str())];
    let file = "[github]\nwebhook_secrets = [\"inline\"]";
    assert_eq!(secrets(load_with(Some(file), &env, Overrides::default())), ["new", "old"]);
}

#[test]
fn a_file_that_is_missing_or_not_toml_is_named() {
    let nowhere = Some(Path::new("/nowhere.toml"));
    let none = Config::load(nowhere, std::iter::empty(), Overrides::default(), &STUBS);
    insta::assert_snapshot!(none.expect_err("no file"), @"cannot read /nowhere.toml");
    insta::assert_snapshot!(error_of("listen = \"x\"\n[triggers\n"), @"issuebox.toml:2: unclosed table, expected `]`");
    insta::assert_snapshot!(error_of("listen = \"a\"\nlisten = \"b\"\n"), @"issuebox.toml:2: duplicate key");
}
